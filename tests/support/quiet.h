/* quiet.h -- whether all threads of this process sleep. Tests use it instead of sleeping for a
 * fixed time on a machine of unknown speed. */
#ifndef FR_TEST_SUPPORT_QUIET_H
#define FR_TEST_SUPPORT_QUIET_H

#include <stdbool.h>

/* Every other thread of the process sleeps at one moment of this call: nothing happens until a
 * timer ends a sleep, another process acts or the caller does. A thread that was woken and waits
 * for a core is not asleep. */
bool quiet_now(void);
/* Returns when that is so. */
void quiet_wait(void);

#endif
