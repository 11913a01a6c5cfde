/* transport.h -- the tables that registry.c lists, and their common checks. */
#ifndef FR_TRANSPORT_TRANSPORT_H
#define FR_TRANSPORT_TRANSPORT_H

#include <forerun/transport.h>

#include "backend/device.h"

extern const fr_transport fr__transport_threads;
extern const fr_transport fr__transport_mpi; /* only in builds with FR_HAVE_MPI */

/* FR_INVALID with a text if the description is invalid in a group of n_members. */
fr_status fr__channel_check(fr_ctx *ctx, int n_members, const fr_channel_desc *d);
fr_status fr__board_check(fr_ctx *ctx, int n_members, int n_parts, const int *owner);
fr_status fr__sum_check(fr_ctx *ctx, int n_members, const fr_sum_desc *d);

/* Shard k of a bucket of n floats: those that the kth of n_members reduces. */
void fr__shard(size_t n, int n_members, int k, size_t *at, size_t *count);

#endif
