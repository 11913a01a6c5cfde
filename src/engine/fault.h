/* fault.h -- faults on purpose, for tests: what goes wrong, where, when. */
#ifndef FR_ENGINE_FAULT_H
#define FR_ENGINE_FAULT_H

#include <forerun/engine.h>

typedef enum fr_fault_kind {
    FR_FAULT_NONE,
    FR_FAULT_ERROR, /* the worker fails */
    FR_FAULT_HANG,  /* the worker never comes back */
    FR_FAULT_SLOW,  /* each instruction from then on takes `ms` longer */
    FR_FAULT_NAN,   /* the stage's first output (the loss, on the last stage) becomes NaN */
    FR_FAULT_JITTER /* all workers: random sleeps of up to `ms` before instructions */
} fr_fault_kind;

typedef struct fr_fault {
    fr_fault_kind kind;
    int worker;
    int64_t step; /* mini-batch of the run, from 0 */
    double ms;
    uint64_t seed; /* jitter */
} fr_fault;

/* "hang:worker=1,step=3"; "jitter:ms=2,seed=7". NULL if fine, else what is wrong. */
const char *fr__fault_parse(const char *text, fr_fault *out);

#endif
