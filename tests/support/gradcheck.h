/* gradcheck.h -- gradients of a program against finite differences of ref's forward. */
#ifndef FR_TEST_SUPPORT_GRADCHECK_H
#define FR_TEST_SUPPORT_GRADCHECK_H

#include "support/harness.h"

/* Do all gradients of net `line` in this precision on `backend` agree with finite differences? If
 * not, v says where. The differences are those of the net in floats, at numbers of that precision.
 * Values are moved away from the kinks of relu, selu and max_pool at the stage's inputs. */
bool gradcheck(verdict *v, const char *line, int batch, const fr_backend *backend, fr_dtype type);

#endif
