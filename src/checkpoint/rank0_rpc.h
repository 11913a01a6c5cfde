/* rank0_rpc.h -- rank 0 works with the values of an engine, the other ranks help.
 *
 * An engine's calls are made by all processes together, but only rank 0 has the files, and so only
 * it knows which call comes next. It announces each one, and the others follow until it is done.
 * In a process alone the calls are made and nothing else happens. */
#ifndef FR_CHECKPOINT_RANK0_RPC_H
#define FR_CHECKPOINT_RANK0_RPC_H

#include "config/setup.h"

typedef enum fr__rpc_kind {
    FR_RPC_END, /* of what rank 0 leads */
    FR_RPC_GET_PARAM,
    FR_RPC_SET_PARAM,
    FR_RPC_GET_STATE,
    FR_RPC_SET_STATE,
    FR_RPC_GET_GRAD,
    FR_RPC_SET_MEMORY
} fr__rpc_kind;

/* Together: rank 0 calls work(arg), which may touch values; the others follow. FR_OK if all went
 * well everywhere, else the same status on all. */
fr_status fr__rank0_work(fr__setup *s, fr_engine *e, fr_status (*work)(void *arg), void *arg);

/* Inside it, rank 0: the values of a parameter, a gradient, or state `which`, in or out. */
fr_status fr__rank0_call(fr__setup *s, fr_engine *e, fr__rpc_kind kind, int which, int param,
                         float *plain);

#endif
