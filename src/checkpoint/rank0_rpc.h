/* rank0_rpc.h -- rank 0 reads and writes values of an engine with the help of the other ranks.
 *
 * All processes make the calls of an engine together, but only rank 0 has the files and can
 * decide which call comes next. It sends each request to the other ranks, which make the same call,
 * until it ends. In a single process only the calls are made. */
#ifndef FR_CHECKPOINT_RANK0_RPC_H
#define FR_CHECKPOINT_RANK0_RPC_H

#include "config/setup.h"

typedef enum fr__rpc_kind {
    FR_RPC_END, /* rank 0 is done */
    FR_RPC_GET_PARAM,
    FR_RPC_SET_PARAM,
    FR_RPC_GET_STATE,
    FR_RPC_SET_STATE,
    FR_RPC_GET_GRAD,
    FR_RPC_SET_MEMORY
} fr__rpc_kind;

/* All ranks call it together. Rank 0 runs work(arg), which may use fr__rank0_call; the others serve
 * its requests. All ranks return the same status. */
fr_status fr__rank0_work(fr__setup *s, fr_engine *e, fr_status (*work)(void *arg), void *arg);

/* Inside work, on rank 0: read or write the values of a parameter, a gradient, or state `which`. */
fr_status fr__rank0_call(fr__setup *s, fr_engine *e, fr__rpc_kind kind, int which, int param,
                         float *plain);

#endif
