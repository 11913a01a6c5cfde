/* links.h -- of links in use: how long the busiest of them has worked. */
#ifndef FR_COST_LINKS_H
#define FR_COST_LINKS_H

#include <forerun/cost.h>

/* Seconds that the busiest port or bus has been taken for since the last reset. */
double fr__links_busiest(const fr_links *l);

#endif
