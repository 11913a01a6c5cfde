/* chart.h -- a profile as bars in a terminal. */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include <forerun/cost.h>

/* The n_rows heaviest nodes, in the order of the model, and the rest as one; 0: all of them. */
void chart_print(const fr_profile *p, int n_rows, int columns, bool is_coloured);

#endif
