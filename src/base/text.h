/* text.h -- a text that grows. A failed allocation is recorded, so only the end needs a check.
 *
 *     fr__text t = {0};
 *     fr__text_printf(&t, "%d stages\n", n);
 *     char *text = fr__text_take(&t);  NULL: no memory */
#ifndef FR_BASE_TEXT_H
#define FR_BASE_TEXT_H

#include <forerun/base.h>

typedef struct fr__text {
    char *at; /* (n), and a zero; NULL if nothing was put */
    size_t n, room;
    bool failed; /* no memory: the text is incomplete */
} fr__text;      /* zero is empty */

void fr__text_put(fr__text *t, const char *text);
void fr__text_put_bytes(fr__text *t, const char *bytes, size_t n);
void fr__text_printf(fr__text *t, const char *format, ...) FR_PRINTF(2, 3);
/* The text, to be released with fr__free; NULL if memory ran out. t is empty afterwards. */
char *fr__text_take(fr__text *t);
void fr__text_fini(fr__text *t);

#endif
