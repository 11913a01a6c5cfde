/* room.h -- memory that is available to this process, and memory that it uses. */
#ifndef FR_BASE_ROOM_H
#define FR_BASE_ROOM_H

#include <stddef.h>
#include <stdint.h>

/* Available bytes; UINT64_MAX if unknown. */
typedef struct fr__room {
    uint64_t machine; /* MemAvailable: for all processes of the machine together */
    uint64_t
        group; /* within the limits of the control group and its parents; UINT64_MAX: no limit */
    uint64_t group_id; /* equal for processes that share the limit of one control group */
} fr__room;

/* Reads /proc and /sys/fs/cgroup (versions 2 and 1) below `root`, which is "" except in tests. */
void fr__room_read(const char *root, fr__room *out);

/* Current resident bytes of this process; 0 if unknown. */
size_t fr__resident_bytes(void);

#endif
