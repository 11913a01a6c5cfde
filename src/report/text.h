/* text.h -- a text that grows, and JSON in it that nothing can break out of. */
#ifndef FR_REPORT_TEXT_H
#define FR_REPORT_TEXT_H

#include <forerun/base.h>

typedef struct fr_text {
    char *at; /* (n), and a zero */
    size_t n, room;
} fr_text; /* zero is an empty one */

/* False: no memory; the text stays as it was. */
bool fr__text_put(fr_text *t, const char *piece, size_t n);
/* The same of a piece of JSON (the `write` of fr__json_to; user: the fr_text). The text may stand
 * inside a script of an HTML page, and be a script itself: no <, no U+2028 or U+2029 is left. */
bool fr__text_put_json(void *text, const char *piece, size_t n);
/* Of text into HTML: & < > and quotes become entities. */
bool fr__text_put_html(fr_text *t, const char *piece);
void fr__text_fini(fr_text *t);

#endif
