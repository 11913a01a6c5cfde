/* links.h -- internal access to the occupancy of links. */
#ifndef FR_COST_LINKS_H
#define FR_COST_LINKS_H

#include <forerun/cost.h>

/* Busy seconds of the busiest port or bus since the last reset. */
double fr__links_busiest(const fr_links *l);

#endif
