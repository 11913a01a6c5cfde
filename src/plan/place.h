/* place.h -- operators on devices: what dlplacer, its start solution and the enumeration share.
 *
 * Jobs have a duration, arcs between them a transfer time that counts where their ends lie on
 * different devices. A device runs one job at a time; from each device to each other leads a link
 * that carries one transfer at a time. Jobs are numbered in topological order. */
#ifndef FR_PLAN_PLACE_H
#define FR_PLAN_PLACE_H

#include "plan/internal.h"

struct fr__arc {
    int from, to;
    double time; /* of the transfer */
};

struct fr__jobs {
    int n, n_arcs, n_devices;
    double *time;         /* (n) at speed 1 */
    double *bytes;        /* (n) taken on its device */
    const int *fixed;     /* (n) device it must be on, -1: any; NULL: all any */
    const double *speed;  /* (n_devices) */
    const double *memory; /* (n_devices) */
    struct fr__arc *arcs; /* sorted by `to` */
    int *first_in;        /* (n + 1): arcs into a job */
};

struct fr__placing {
    double makespan;
    int *device;   /* (n) */
    double *start; /* (n) */
    double *sent;  /* (n_arcs): start of the transfer, where there is one */
};

/* The operators of a problem: forward, backward and update of each as one job. The backward runs as
 * the mirror image of the forward, so a transfer counts twice: value and gradient. */
fr_status fr__jobs_make(struct fr__task *t, struct fr__jobs *j);
fr_status fr__placing_make(fr_ctx *ctx, fr_arena *a, const struct fr__jobs *j,
                           struct fr__placing *p);
void fr__placing_copy(const struct fr__jobs *j, const struct fr__placing *from,
                      struct fr__placing *to);
bool fr__place_fits(const struct fr__jobs *j, const int *device);
/* The schedule of p->device in which jobs and transfers follow each other as `key` (jobs, then
 * arcs) says, or, by_time, whatever can begin first does, keys deciding between equals. Sets start,
 * sent, makespan. False: out of memory. */
bool fr__place_run(const struct fr__jobs *j, const double *key, bool by_time,
                   struct fr__placing *p);
/* Longest way from the start of a job to the end, transfers left out, on the fastest device. */
void fr__place_tails(const struct fr__jobs *j, double *tail);
/* No placing is shorter. */
double fr__place_bound(const struct fr__jobs *j, const double *tail);

/* Jobs by their longest way to the end, each where it ends first; then moved one by one while that
 * helps. makespan INFINITY: nothing fits. */
fr_status fr__place_list(fr_ctx *ctx, const struct fr__jobs *j, struct fr__placing *best);
/* Every placement and every order; up to about 10 jobs. */
fr_status fr__place_brute(fr_ctx *ctx, const struct fr__jobs *j, struct fr__placing *best);
/* The integer program; *best is a placing that it must beat. *bound: no placing is shorter. */
fr_status fr__place_program(fr_ctx *ctx, const struct fr__jobs *j, double seconds,
                            struct fr__placing *best, double *bound);

fr_status fr__plan_place(struct fr__task *t, const char *planner, const struct fr__jobs *j,
                         const struct fr__placing *p, fr_plan **out);

#endif
