/* room.h -- how much memory this process may still take, and how much it has. */
#ifndef FR_BASE_ROOM_H
#define FR_BASE_ROOM_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that can still be taken; UINT64_MAX where the system does not say. */
typedef struct fr_room {
    uint64_t machine;  /* MemAvailable: for all processes of the machine together */
    uint64_t group;    /* below the limits of the control group and its parents; UINT64_MAX: none */
    uint64_t group_id; /* equal for processes of one control group, which share its limit */
} fr_room;

/* Reads /proc and /sys/fs/cgroup (versions 2 and 1) below `root`: "" but in tests. */
void fr__room_read(const char *root, fr_room *out);

/* Resident bytes of this process now; 0 where the system does not say. */
size_t fr__resident_bytes(void);

#endif
