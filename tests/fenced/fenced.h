/* fenced.h -- backends for tests: memory that the host cannot read, and the same behind a queue. */
#ifndef FR_TEST_FENCED_FENCED_H
#define FR_TEST_FENCED_FENCED_H

#include "backend/kernel.h"

extern fr_backend fenced_backend, deferred_backend; /* filled before main */

#endif
