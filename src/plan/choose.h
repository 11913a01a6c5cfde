/* choose.h -- the parts of the whole choice: which stage on which device (choose_devices.c), cuts
 * for them (choose_cuts.c), what to expect of a layout (choose_weigh.c), all layouts worth a try
 * (choose_options.c), what each comes to in the simulator (choose_try.c), changes to the best of
 * them (choose_move.c), why each method lost (choose_loss.c), and the reasons in words
 * (choose_why.c). */
#ifndef FR_PLAN_CHOOSE_H
#define FR_PLAN_CHOOSE_H

#include "base/text.h"
#include "base/vec.h"
#include "plan/internal.h"

enum fr__class { FR__ALONE, FR__DATA, FR__FLUSH, FR__ASYNC, FR__N_CLASSES };

/* Devices for the workers of a layout. */
struct fr__place {
    const int *device_of; /* [worker]; NULL: worker w on device w */
    bool is_across;       /* stages of a pipeline side by side, not replicas of a stage */
};

/* Places worth a try for so many workers side by side, each with so many replicas. */
struct fr__shape {
    int n_wide, replicas;
    FR_VEC(struct fr__place) places;
};

/* Criteria of balanced cuts: computation alone, its links too, or both and the memory of devices:
 * enough by the count of 1F1B, or so much that copies of weights and buffers fit, too. */
enum fr__aim { FR__BY_WORK, FR__BY_LINKS, FR__BY_LEAN_MEMORY, FR__BY_AMPLE_MEMORY };

/* Cuts into so many stages for the devices of a place. */
struct fr__cuts {
    int n_stages, chunks, replicas;
    bool is_v; /* placement of the stages */
    const int *device_of;
    enum fr__aim aim;
    const int *at; /* [n_stages - 1] nodes; NULL: there are none */
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
    int lead;                   /* that fr__choose_can asks for; 0: 1 */
    const int *cuts, *replicas; /* [n_stages - 1], [n_stages] */
    const int *device_of;       /* [worker] */
    bool is_across;             /* stages of a pipeline side by side, not replicas of a stage */
    bool is_variant;            /* of another option, on other devices or cut otherwise */
    const char *from;           /* who proposed the cuts */
    enum fr__class class;
    double bound, estimate; /* of a mini-batch: no less; about */
    bool is_too_large;      /* for its devices, probably */
    bool runs_ahead;        /* no gradient leaves some stage: those before it wait for nothing */
};

/* The result of an option. */
struct fr__outcome {
    const struct fr__option *option;
    int method; /* the option's, or another with the same schedule */
    int lead;   /* of the schedule */
    const int *cuts;
    const bool *recompute;            /* [node]; NULL: none */
    double s_per_batch, bubble, busy; /* busy: of the busiest worker, a mini-batch */
    double sum_bytes, message_bytes;  /* sent by all, a mini-batch */
    size_t *memory;                   /* [worker] */
    size_t peak;
    bool fits;
    int n_moves;   /* of cuts, by the simulator */
    bool is_extra; /* tried to say why its method lost */
};

/* The result of a layout; the search returns to some of them. */
struct fr__known {
    uint64_t key; /* of all that follows */
    int asked;    /* method */
    struct fr__outcome out;
};

struct fr__chooser {
    fr_ctx *ctx;
    const fr_choice_desc *d;
    fr_arena *arena; /* of the choice */
    int n_devices;
    fr_links *links; /* what a layout that is weighed puts on them */
    FR_VEC(struct fr__size *) sizes;
    FR_VEC(struct fr__option) options;
    FR_VEC(struct fr__outcome) outcomes;
    FR_VEC(struct fr__known) known;
    int n_tried, n_too_large;
    double most_instructions; /* walked in the simulator for one kind of layouts */
    /* Which devices to take, from fr__choose_devices on: */
    bool has_choice; /* devices or their links differ */
    bool is_even;    /* devices are alike, and so are the boxes that hold them */
    int *class_of;   /* (cluster's devices): those of a class can take each other's place */
    int n_classes;
    int n_orders; /* of all devices, by which to take the first so many */
    const int *orders[8];
    const int *fastest; /* one of them */
    int n_steps;        /* numbers of devices behind which the next fastest are slower */
    int steps[8];
    FR_VEC(struct fr__shape *) shapes;
};

fr_status fr__choose_size(struct fr__chooser *c, int n_micro, struct fr__size **out);
/* Learn from the cluster, and the speeds that a profile gives it, what there is to choose. */
fr_status fr__choose_devices(struct fr__chooser *c, const struct fr__task *t);
fr_status fr__choose_shape(struct fr__chooser *c, int n_wide, int replicas,
                           const struct fr__shape **out);
/* The least slowest stage for the devices of an option (its cuts are not read). *cuts NULL: there
 * are not so many nodes, or none fit. */
fr_status fr__choose_balance(struct fr__chooser *c, const struct fr__option *o, enum fr__aim aim,
                             const int **cuts);
/* The same, of options whose stages have equally many replicas: kept. */
fr_status fr__choose_cuts(struct fr__chooser *c, const struct fr__option *o, enum fr__aim aim,
                          const int **cuts);
enum { FR__SOME_REPLICAS = 16 }; /* of a worker, whose links are looked at */
static inline int fr__choose_device(const struct fr__option *o, int worker)
{
    return o->device_of ? o->device_of[worker] : worker;
}
/* The worker of a stage, replicas counted as one, and the number of its replica 0. */
static inline int fr__choose_worker(const struct fr__chooser *c, const struct fr__option *o,
                                    int stage)
{
    return fr_generator_worker(c->d->methods[o->method].generator, o->n_stages / o->chunks, stage);
}
static inline int fr__choose_first(const struct fr__chooser *c, const struct fr__option *o,
                                   int stage)
{
    int first = 0;
    for (int w = fr__choose_worker(c, o, stage); w > 0; w--) first += o->replicas[w - 1];
    return first;
}
static inline bool fr__choose_has_room(const struct fr__chooser *c, int device, size_t bytes)
{
    int64_t limit = c->d->cluster->devices[device].memory; /* 0: none is known */
    return limit <= 0 || bytes <= (size_t)limit;
}
/* Sets bound, estimate, is_too_large, runs_ahead. */
fr_status fr__choose_weigh(struct fr__chooser *c, struct fr__option *o);
/* The cuts of the best estimate, those that seem to fit first, of all where they are few, else of
 * those that are reached by moving one after the other; of the budget each look takes as many as
 * there are nodes. */
fr_status fr__choose_climb(struct fr__chooser *c, struct fr__option *o, double *budget);
/* Fill c->options. */
fr_status fr__choose_options(struct fr__chooser *c);
/* Have both the same schedule, and so take the same time? */
bool fr__choose_is_twin(const struct fr__chooser *c, int a, int b);
/* Can the method run on so many stages, replicas, micro-batches? */
bool fr__choose_can(const struct fr__chooser *c, int method, const struct fr__option *o);
/* Largest lead that a method may try; 1: it has none. */
static inline int fr__choose_lead(const struct fr__chooser *c, int method)
{
    const fr_plan_method *m = &c->d->methods[method];
    return m->generator->has_lead && m->max_lead > 1 ? m->max_lead : 1;
}
/* Simulate an option with these cuts; memory is made to fit by another method with the same
 * schedule, and by recompute where that is allowed; of its leads the fastest that fits is taken. A
 * layout that does not fit is not simulated, and nothing is twice. */
fr_status fr__choose_try(struct fr__chooser *c, const struct fr__option *o, int method,
                         const int *cuts, struct fr__outcome *out);
/* Exchange devices of an outcome that is too large, or move its cuts, until it fits, where that
 * helps. */
fr_status fr__choose_fit(struct fr__chooser *c, struct fr__outcome *at);
/* Instructions, about, that a simulation walks. */
double fr__choose_cost(const struct fr__chooser *c, const struct fr__option *o);
/* Move cuts, and stages to other devices, while that helps, at most `tries` simulations. */
fr_status fr__choose_refine(struct fr__chooser *c, struct fr__outcome *at, int tries);
/* After the search: every method that can run has an outcome, if its own layouts were not tried
 * because others promised more. */
fr_status fr__choose_complete(struct fr__chooser *c);
/* Why a method is not the first of the sorted outcomes: one line; NULL: out of memory. */
const char *fr__choose_loss(struct fr__chooser *c, int method);
/* "4 stages x 2 replicas, 8 devices, 4 micro-batches" */
void fr__choose_say_layout(fr__text *t, const struct fr__outcome *at);
/* Reasons: of a candidate; of the choice, `best`: [class], NULL where there is none. */
const char *fr__choose_reason(struct fr__chooser *c, const struct fr__outcome *at);
void fr__choose_explain(const struct fr__chooser *c, const struct fr__outcome *const *best,
                        const struct fr__outcome *first, const struct fr__outcome *second,
                        char *why, size_t room);

#endif
