/* thread.h -- the few things about threads, time and the machine that modules share. */
#ifndef FR_BASE_THREAD_H
#define FR_BASE_THREAD_H

#include <forerun/base.h>
#include <pthread.h>

/* Nanoseconds on a clock that never jumps. */
uint64_t fr__now_ns(void);

/* Cores this process may run on (at least 1). */
int fr__cpu_count(void);

/* Peak resident memory of the process, bytes. */
size_t fr__peak_rss(void);

#endif
