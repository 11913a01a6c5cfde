/* transport.h -- the tables that registry.c lists, and what they check alike. */
#ifndef FR_TRANSPORT_TRANSPORT_H
#define FR_TRANSPORT_TRANSPORT_H

#include <forerun/transport.h>

extern const fr_transport fr__transport_threads;

/* FR_INVALID with a text if the description makes no sense in a group of n_members. */
fr_status fr__channel_check(fr_ctx *ctx, int n_members, const fr_channel_desc *d);
fr_status fr__board_check(fr_ctx *ctx, int n_members, int n_parts, const int *owner);

#endif
