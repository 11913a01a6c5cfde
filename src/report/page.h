/* page.h -- the page of the report as one text, built from page/ (page/embed.cmake). Unmodified, it
 * is the live page: its data are null. */
#ifndef FR_REPORT_PAGE_H
#define FR_REPORT_PAGE_H

#include <stddef.h>

typedef struct fr__page_parts {
    const char *text; /* (bytes), and a zero */
    size_t bytes;
    size_t title, title_end; /* the text between <title> and </title> */
    size_t data, data_end;   /* the null in the script of the data */
} fr__page_parts;

extern const fr__page_parts fr__page;

#endif
