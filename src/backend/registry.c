/* registry.c -- the list of backends, and nothing else: tests link a list of their own
 * (tests/fenced/list.c) instead of this file. */
#include "backend/kernel.h"

/* In order of preference. */
static const fr_backend *const backends[] = {&fr__backend_cpu, &fr__backend_ref, NULL};

const fr_backend *const *fr_backend_list(void) { return backends; }
