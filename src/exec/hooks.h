/* hooks.h -- callbacks of an executor while it works with other replicas. */
#ifndef FR_EXEC_HOOKS_H
#define FR_EXEC_HOOKS_H

#include <forerun/base.h>

/* Called on the worker's thread; each may be NULL. Sums are the reductions of gradients, by bucket,
 * or the sums of a sync rule. */
typedef enum fr__sum_kind { FR__SUM_GRADS, FR__SUM_SYNC } fr__sum_kind;
typedef struct fr__exec_hooks {
    void *user;
    void (*waits)(void *user, bool begins); /* for other workers */
    /* Sum k is posted: `bytes` are sent to the other replicas. share: the part of the gradient that
     * is final. */
    void (*posted)(void *user, fr__sum_kind kind, int k, double share, size_t bytes, bool is_alive);
    void (*taken)(void *user, fr__sum_kind kind, int k, bool is_alive);
    void (*stepped)(void *user, double share); /* the part of the update made between sums */
} fr__exec_hooks;

static inline void fr__exec_waits(const fr__exec_hooks *h, bool begins)
{
    if (h->waits) h->waits(h->user, begins);
}

#endif
