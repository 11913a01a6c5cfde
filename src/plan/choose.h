/* choose.h -- the parts of the whole choice: cuts by micro-batch size (choose_cuts.c), what to
 * expect of a layout (choose_weigh.c), all layouts worth a try (choose_options.c), what each comes
 * to in the simulator (choose_try.c), and the reasons in words (choose_why.c). */
#ifndef FR_PLAN_CHOOSE_H
#define FR_PLAN_CHOOSE_H

#include "base/vec.h"
#include "plan/internal.h"

enum fr__class { FR__ALONE, FR__DATA, FR__FLUSH, FR__ASYNC, FR__N_CLASSES };

/* Cuts into so many stages. */
struct fr__cuts {
    int n_stages;
    bool is_chunked;
    const int *at; /* [n_stages - 1] nodes; NULL: there are not so many */
};

/* Micro-batches of one size: the profile, and sums over it. */
struct fr__size {
    int n_micro;
    fr_plan_problem problem;
    struct fr__task task;
    FR_VEC(struct fr__cuts) cuts; /* found so far */
};

/* A layout that may be tried. */
struct fr__option {
    struct fr__size *size;
    int method, n_stages, chunks, n_workers;
    const int *cuts, *replicas; /* [n_stages - 1], [n_stages] */
    const int *device_of;       /* [worker] */
    bool is_across;             /* stages of a pipeline side by side, not replicas of a stage */
    const char *from;           /* who proposed the cuts */
    enum fr__class class;
    double bound, estimate; /* of a mini-batch: no less; about */
};

/* What an option comes to. */
struct fr__outcome {
    const struct fr__option *option;
    int method; /* the option's, or another with the same schedule */
    const int *cuts;
    bool *recompute;                  /* [n_stages] */
    double s_per_batch, bubble, busy; /* busy: of the busiest worker, a mini-batch */
    double sum_bytes, message_bytes;  /* sent by all, a mini-batch */
    size_t *memory;                   /* [worker] */
    size_t peak;
    bool fits;
    int n_moves; /* of cuts, by the simulator */
};

struct fr__chooser {
    fr_ctx *ctx;
    const fr_choice_desc *d;
    fr_arena *arena; /* of the choice */
    int n_devices;
    bool are_alike, has_levels;
    double fastest_link; /* bytes/s; INFINITY: free */
    double bus;          /* bytes/s of the one bus that everything shares; INFINITY: none */
    fr_links *links;     /* idle */
    FR_VEC(struct fr__size *) sizes;
    FR_VEC(struct fr__option) options;
    FR_VEC(struct fr__outcome) outcomes;
    int n_tried, n_too_large;
};

fr_status fr__choose_size(struct fr__chooser *c, int n_micro, struct fr__size **out);
fr_status fr__choose_cuts(struct fr__chooser *c, struct fr__size *size, int n_stages, int replicas,
                          bool is_chunked, const int **cuts);
const int *fr__choose_nodes(struct fr__chooser *c, const struct fr__task *t, int n,
                            const struct fr__part *parts);
/* Sets bound and estimate. */
fr_status fr__choose_weigh(struct fr__chooser *c, struct fr__option *o);
/* Fill c->options. */
fr_status fr__choose_options(struct fr__chooser *c);
/* Can the method run on so many stages, replicas, micro-batches? */
bool fr__choose_can(const struct fr__chooser *c, int method, const struct fr__option *o);
/* Simulate an option with these cuts; memory is made to fit by another method with the same
 * schedule, and by recompute where that is allowed. What does not fit is not simulated. */
fr_status fr__choose_try(struct fr__chooser *c, const struct fr__option *o, int method,
                         const int *cuts, struct fr__outcome *out);
/* Instructions, about, that a simulation walks. */
double fr__choose_cost(const struct fr__chooser *c, const struct fr__option *o);
/* Move cuts while that helps, at most `tries` simulations. */
fr_status fr__choose_refine(struct fr__chooser *c, struct fr__outcome *at, int tries);
/* Reasons: of a candidate; of the choice, `best`: [class], NULL where there is none. */
const char *fr__choose_reason(struct fr__chooser *c, const struct fr__outcome *at);
void fr__choose_explain(const struct fr__chooser *c, const struct fr__outcome *const *best,
                        const struct fr__outcome *first, const struct fr__outcome *second,
                        char *why, size_t room);

#endif
