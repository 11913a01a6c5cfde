/* profile.h -- internals of profiles: table of numbers, memory, text formats. */
#ifndef FR_COST_PROFILE_H
#define FR_COST_PROFILE_H

#include <forerun/cost.h>

#include "base/arena.h"

#include <pthread.h>

#define FR_PROFILE_MAX_BYTES ((size_t)64 << 20) /* of a file */

/* X(field, is it required in files): the numbers of a node, in file order. In back_input_s and
 * back_weight_s, NaN means "not measured". */
#define FR_PROFILE_REALS(X)    \
    X(forward_s, true)         \
    X(backward_s, true)        \
    X(back_input_s, false)     \
    X(back_weight_s, false)    \
    X(update_s, false)         \
    X(fetch_forward_s, false)  \
    X(fetch_backward_s, false) \
    X(flops, false)
#define FR_PROFILE_INTS(X)  \
    X(output_bytes, true)   \
    X(kept_bytes, false)    \
    X(param_bytes, true)    \
    X(fixed_bytes, false)   \
    X(values_bytes, false)  \
    X(scratch_bytes, false) \
    X(edge_bytes, false)

/* Behind fr_profile.arena. */
struct fr__profile_store {
    fr_profile profile;
    fr_arena arena;
    const fr_profile **own; /* (n_own) owned profiles of other sizes */
    int n_own;
    int *last_use;       /* (nodes) last reader, -1: none; NULL: a profile of one size of another */
    bool *has_grad;      /* (nodes) it or a node before it has trained weights */
    bool has_workspaces; /* nodes have values_bytes and scratch_bytes */
    pthread_mutex_t lock; /* guards all members below: any thread may read a profile */
    fr_arena costs;
    struct fr__stage_memo **memo; /* (room) hash table of stage costs, computed once */
    size_t room, n;
};

/* Deep copy without checks. Nodes without a name are named "node<index>". */
fr_status fr__profile_clone(fr_ctx *ctx, const fr_profile *p, fr_profile **out);
/* fr_profile_copy of one size, which may still be changed. */
fr_status fr__profile_copy_one(fr_ctx *ctx, const fr_profile *p, fr_profile **out);
/* Add copies of the sizes to a profile without sizes; check each against the profile. */
fr_status fr__profile_add_sizes(fr_ctx *ctx, fr_profile *p, int n, const fr_profile *const *sizes);
/* False: `text` describes the error of node i. */
bool fr__profile_is_sound(const fr_profile *p, int i, char text[256]);
/* Replace a file atomically, or write to standard output ("-"). */
fr_status fr__profile_put(fr_ctx *ctx, const char *path, const char *text, size_t bytes);

/* Parse either format. Errors name `path`; `text` (zero-terminated) is modified. */
fr_status fr__profile_parse(fr_ctx *ctx, const char *path, char *text, size_t bytes,
                            const fr_profile **out);
fr_status fr__profile_from_json(fr_ctx *ctx, const char *path, const char *text, size_t bytes,
                                const fr_profile **out);
fr_status fr__profile_from_text(fr_ctx *ctx, const char *path, char *text, const fr_profile **out);

/* Contents of files, zero-terminated; release with fr__free. */
fr_status fr__profile_to_json(fr_ctx *ctx, const fr_profile *p, char **text);
fr_status fr__profile_to_text(fr_ctx *ctx, const fr_profile *p, char **text);

#endif
