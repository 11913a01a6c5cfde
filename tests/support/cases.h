/* cases.h -- the nets that every backend is judged by. */
#ifndef FR_TEST_SUPPORT_CASES_H
#define FR_TEST_SUPPORT_CASES_H

#include <stddef.h>

typedef struct net_case {
    const char *line; /* see net.h */
    int batch;
    double tolerance; /* of a backend against ref; 0: 1e-5 */
} net_case;

/* One operator each, tiny: for finite differences. Each operator at least once. */
extern const net_case operator_cases[];
extern const size_t n_operator_cases;

/* Odd and larger shapes, chains that a backend may fuse, values used more than once. */
extern const net_case network_cases[];
extern const size_t n_network_cases;

#endif
