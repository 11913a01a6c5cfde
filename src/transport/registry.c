/* registry.c -- the list of transports, and the checks and computations that they share. */
#include "transport/transport.h"

#include "base/names.h"

/* In order of preference. */
static const fr_transport *const transports[] = {&fr__transport_threads,
#ifdef FR_HAVE_MPI
                                                 &fr__transport_mpi,
#endif
                                                 NULL};

FR_REGISTRY(fr_transport, transports, fr_transport_list, fr_transport_find)

fr_status fr__channel_check(fr_ctx *ctx, int n_members, const fr_channel_desc *d)
{
    if (d->from < 0 || d->from >= n_members || d->to < 0 || d->to >= n_members)
        return fr_fail(ctx, FR_INVALID, "a channel from worker %d to worker %d in a group of %d",
                       d->from, d->to, n_members);
    if (d->n_buffers < 1 || !d->memory || d->stride < d->bytes)
        return fr_fail(ctx, FR_INVALID,
                       "the channel from worker %d to worker %d has %d buffers of %zu bytes, %zu "
                       "apart, at %p; give it memory for at least one, none over another",
                       d->from, d->to, d->n_buffers, d->bytes, d->stride, (void *)d->memory);
    return FR_OK;
}

fr_status fr__board_check(fr_ctx *ctx, int n_members, int n_parts, const int *owner)
{
    if (n_parts < 1) return fr_fail(ctx, FR_INVALID, "a board of %d parts", n_parts);
    for (int i = 0; i < n_parts; i++)
        if (owner[i] < 0 || owner[i] >= n_members)
            return fr_fail(ctx, FR_INVALID,
                           "part %d of a board belongs to worker %d in a group of %d", i, owner[i],
                           n_members);
    return FR_OK;
}

fr_status fr__sum_check(fr_ctx *ctx, int n_members, const fr_sum_desc *d)
{
    if (d->n_members < 1 || d->n_members > FR_TREE_MEMBERS || d->n_buckets < 1)
        return fr_fail(ctx, FR_INVALID,
                       "a sum of %d buckets over %d workers; give it at least one bucket, and 1 to "
                       "%d workers",
                       d->n_buckets, d->n_members, FR_TREE_MEMBERS);
    for (int k = 0; k < d->n_members; k++) {
        bool is_new = d->members[k] >= 0 && d->members[k] < n_members;
        for (int j = 0; j < k; j++) is_new &= d->members[j] != d->members[k];
        if (!is_new)
            return fr_fail(ctx, FR_INVALID, "a sum over worker %d, %s", d->members[k],
                           d->members[k] < 0 || d->members[k] >= n_members
                               ? "which is not in the group"
                               : "which is already in it");
    }
    bool is_ascending = d->edge[0] == 0;
    for (int b = 0; b < d->n_buckets; b++) is_ascending &= d->edge[b] <= d->edge[b + 1];
    if (!is_ascending)
        return fr_fail(ctx, FR_INVALID, "the edges of the buckets of a sum do not ascend from 0");
    return FR_OK;
}

/* Whole cache lines, so that two members do not write to the same one. */
void fr__shard(size_t n, int n_members, int k, size_t *at, size_t *count)
{
    size_t line = FR_ALIGN / sizeof(float), m = (size_t)n_members;
    size_t each = ((n + m - 1) / m + line - 1) / line * line;
    size_t begin = each * (size_t)k < n ? each * (size_t)k : n;
    size_t end = begin + each < n ? begin + each : n;
    *at = begin, *count = end - begin;
}
