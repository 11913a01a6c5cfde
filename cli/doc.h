/* doc.h -- a document for people, written as Markdown or as a man page. */
#ifndef CLI_DOC_H
#define CLI_DOC_H

#include <stdbool.h>

enum { DOC_MAX_CELLS = 6 };

typedef struct doc {
    void (*begin)(void);
    void (*heading)(int level, const char *text); /* 1, 2, 3 */
    void (*text)(const char *text);               /* a paragraph */
    void (*code)(const char *text);               /* lines as they are */
    /* Rows follow; heads and cells end with NULL. The first cell is something to type. */
    void (*table)(const char *const *heads);
    void (*row)(const char *const *heads, const char *const *cells);
} doc;

extern const doc doc_markdown, doc_man;

#endif
