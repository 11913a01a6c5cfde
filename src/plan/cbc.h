/* cbc.h -- CBC, the solver of integer programs, loaded when a planner asks for it.
 *
 * It brings a BLAS library, LAPACK and a Fortran runtime; some BLAS libraries start threads and
 * reserve memory as soon as they are loaded. No other command pays for that. */
#ifndef FR_PLAN_CBC_H
#define FR_PLAN_CBC_H

#ifdef FR_HAVE_CBC

#include <Cbc_C_Interface.h>
#include <forerun/base.h>

#define FR_CBC_CALLS(X)   \
    X(newModel)           \
    X(deleteModel)        \
    X(addCol)             \
    X(addRow)             \
    X(setParameter)       \
    X(setLogLevel)        \
    X(setObjSense)        \
    X(solve)              \
    X(bestSolution)       \
    X(isProvenOptimal)    \
    X(isProvenInfeasible) \
    X(getObjValue)        \
    X(getBestPossibleObjValue)

#define FR_CBC_ENTRY(name) __typeof__(Cbc_##name) *name;
typedef struct fr__cbc {
    void *library;
    FR_CBC_CALLS(FR_CBC_ENTRY)
} fr__cbc;
#undef FR_CBC_ENTRY

/* Loads the first of `files` (ended by NULL) that there is; NULL: the library of the build. On
 * FR_OK the caller closes *out. */
fr_status fr__cbc_open(fr_ctx *ctx, const char *const *files, fr__cbc *out);
void fr__cbc_close(fr__cbc *c);

#endif

#endif
