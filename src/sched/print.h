/* print.h -- a growing text; running out of memory is recorded and reported at the end. */
#ifndef FR_SCHED_PRINT_H
#define FR_SCHED_PRINT_H

#include "base/vec.h"

typedef struct fr__printer {
    FR_VEC(char) text; /* zero-terminated only by fr__print_end */
    bool has_failed;
} fr__printer; /* zero is empty */

void fr__print_bytes(fr__printer *p, const char *bytes, size_t n);
void fr__print(fr__printer *p, const char *format, ...) FR_PRINTF(2, 3);
/* The text, for fr_text_free; NULL if memory ran out. p is empty afterwards. */
char *fr__print_end(fr__printer *p);

#endif
