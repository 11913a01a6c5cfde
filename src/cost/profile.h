/* profile.h -- the inside of profiles: their numbers as a table, their memory, where text goes. */
#ifndef FR_COST_PROFILE_H
#define FR_COST_PROFILE_H

#include <forerun/cost.h>

#include "base/arena.h"

#include <pthread.h>

#define FR_PROFILE_MAX_BYTES ((size_t)64 << 20) /* of a file */

/* X(field, must a file say it): the numbers of a node, in the order of files. NaN stands for "not
 * measured" in the two that may be. */
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
struct fr_profile_store {
    fr_arena arena;
    fr_profile **own; /* (n_own) the sizes, as their owner */
    int n_own;
    int *last_use;        /* (nodes) highest reader, -1: none; NULL: the profile is a part */
    bool *has_grad;       /* (nodes) something trained is at or above it */
    bool has_workspaces;  /* nodes tell values_bytes and scratch_bytes */
    pthread_mutex_t lock; /* guards all below: a profile is read by any thread */
    fr_arena costs;
    struct fr_stage_memo **memo; /* (room) lists by hash: what stages cost, worked out once */
    size_t room, n;
};

/* A copy with memory of its own, nothing checked. Nodes without a name get "node<index>". */
fr_status fr__profile_clone(fr_ctx *ctx, const fr_profile *p, fr_profile **out);
/* Copies of the sizes join a profile that has none yet; each is checked against it. */
fr_status fr__profile_add_sizes(fr_ctx *ctx, fr_profile *p, int n, const fr_profile *const *sizes);
/* False: `text` says what is wrong with node i. */
bool fr__profile_is_sound(const fr_profile *p, int i, char text[256]);
/* To a file, replaced as a whole, or ("-") to standard output. */
fr_status fr__profile_put(fr_ctx *ctx, const char *path, const char *text, size_t bytes);

/* Either format; `path` is for errors only, `text` (ended by a zero) is taken apart. */
fr_status fr__profile_parse(fr_ctx *ctx, const char *path, char *text, size_t bytes,
                            fr_profile **out);
fr_status fr__profile_from_json(fr_ctx *ctx, const char *path, const char *text, size_t bytes,
                                fr_profile **out);
fr_status fr__profile_from_text(fr_ctx *ctx, const char *path, char *text, fr_profile **out);

/* The texts of files, ended by a zero; released by fr__free. */
fr_status fr__profile_to_json(fr_ctx *ctx, const fr_profile *p, char **text);
fr_status fr__profile_to_text(fr_ctx *ctx, const fr_profile *p, char **text);

#endif
