/* text.h -- a growing text, with escaping for JSON inside HTML. */
#ifndef FR_REPORT_TEXT_H
#define FR_REPORT_TEXT_H

#include <forerun/base.h>

typedef struct fr_text {
    char *at; /* (n), and a zero */
    size_t n, room;
} fr_text; /* zero-initialised: empty */

/* False: no memory; the text is unchanged. */
bool fr__text_put(fr_text *t, const char *piece, size_t n);
/* Append a piece of JSON (the `write` of fr__json_to; user: the fr_text). The result is safe inside
 * a script of an HTML page and as a script: <, U+2028 and U+2029 are escaped. */
bool fr__text_put_json(void *text, const char *piece, size_t n);
/* Append text to HTML: & < > and quotes become entities. */
bool fr__text_put_html(fr_text *t, const char *piece);
void fr__text_fini(fr_text *t);

#endif
