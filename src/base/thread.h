/* thread.h -- helpers for threads, time and the machine. */
#ifndef FR_BASE_THREAD_H
#define FR_BASE_THREAD_H

#include <forerun/base.h>
#include <pthread.h>

/* Nanoseconds on a monotonic clock. */
uint64_t fr__now_ns(void);

/* Cores this process may run on (at least 1). */
int fr__cpu_count(void);

/* Steal time in seconds since boot, as the mean over cores: time in which the host ran other guests
 * although this one had work. 0 if the machine is not a guest or the time is unknown. */
double fr__stolen_s(void);

/* Bind the calling thread, and threads that it starts later, to n cores: those from index `first`
 * on among its allowed cores, counted from 0. False, without any change, if there are too few. */
bool fr__thread_pin(int first, int n);
/* System number of the nth allowed core of the calling thread; -1 if there are fewer. */
int fr__nth_cpu(int nth);
/* Hash of the allowed cores: equal for equal sets. */
uint64_t fr__cpus_id(void);
/* Name of the calling thread in debuggers and `top -H`; cut to 15 bytes. */
void fr__thread_name(const char *name);
/* Sleep at least this long, despite signals. */
void fr__sleep_ns(uint64_t ns);

/* Peak resident memory of the process, bytes. */
size_t fr__peak_rss(void);

#endif
