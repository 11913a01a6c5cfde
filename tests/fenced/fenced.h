/* fenced.h -- a backend for tests whose memory the host cannot read. */
#ifndef FR_TEST_FENCED_FENCED_H
#define FR_TEST_FENCED_FENCED_H

#include "backend/kernel.h"

extern fr_backend fenced_backend; /* filled before main */

#endif
