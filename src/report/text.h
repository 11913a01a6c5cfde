/* text.h -- escaping of text for JSON inside HTML, and for HTML. */
#ifndef FR_REPORT_TEXT_H
#define FR_REPORT_TEXT_H

#include "base/text.h"

/* Append a piece of JSON (the `write` of fr__json_to; user: the fr__text). The result is safe
 * inside a script of an HTML page and as a script: <, U+2028 and U+2029 are escaped. */
bool fr__text_put_json(void *text, const char *piece, size_t n);
/* Append text to HTML: & < > and quotes become entities. */
void fr__text_put_html(fr__text *t, const char *piece);

#endif
