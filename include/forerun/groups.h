/* groups.h -- groups of parameters: weights with a learning rate and a weight decay of their own.
 *
 * A group changes the coefficients of an update, and those of predictions by the same rate. Frozen
 * parameters are a property of the graph (fr_graph_freeze): they have no update at all. */
#ifndef FORERUN_GROUPS_H
#define FORERUN_GROUPS_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_param_group {
    double lr_factor;    /* of the learning rate, at least 0 */
    double weight_decay; /* in place of that of fr_optim_options */
} fr_param_group;

/* Groups of the parameters of a graph. */
typedef struct fr_param_groups {
    int n;
    const fr_param_group *at; /* [n] */
    const int *of;            /* [param]: its group, or -1; that of a tied one is its owner's */
} fr_param_groups;

/* Weights of a stage's block that are in a group, or that are frozen. */
#define FR_FROZEN (-1)
typedef struct fr_group_range {
    size_t at, n; /* floats */
    int group;    /* or FR_FROZEN */
} fr_group_range;

#ifdef __cplusplus
}
#endif
#endif
