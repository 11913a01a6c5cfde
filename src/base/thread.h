/* thread.h -- the few things about threads, time and the machine that modules share. */
#ifndef FR_BASE_THREAD_H
#define FR_BASE_THREAD_H

#include <forerun/base.h>
#include <pthread.h>

/* Nanoseconds on a clock that never jumps. */
uint64_t fr__now_ns(void);

/* Cores this process may run on (at least 1). */
int fr__cpu_count(void);

/* Seconds since the start of the machine that its host gave to others though it had work for them:
 * the mean over its cores. 0 where the machine is no guest or the system does not say. */
double fr__stolen_s(void);

/* Keep the calling thread (and threads it starts later) on n cores: those from number `first` on
 * among the cores that it may use now, counted from 0 and whatever their names. False, with nothing
 * changed, if there are not that many. */
bool fr__thread_pin(int first, int n);
/* The number by which the system knows the nth of the cores that the calling thread may use; -1 if
 * there are not that many. */
int fr__nth_cpu(int nth);
/* Equal for equal sets of cores that a thread may use. */
uint64_t fr__cpus_id(void);
/* What debuggers and `top -H` show for the calling thread; cut to 15 bytes. */
void fr__thread_name(const char *name);
/* At least so long, signals or not. */
void fr__sleep_ns(uint64_t ns);

/* Peak resident memory of the process, bytes. */
size_t fr__peak_rss(void);

#endif
