/* rank0_rpc.c -- rank 0 sends each request to the other ranks; all make the same engine call. */
#include "checkpoint/rank0_rpc.h"

#include "base/ctx.h"
#include <forerun/state.h>

typedef struct request {
    int32_t kind, which, param;
} request;

static fr_status call(fr_engine *e, const request *r, float *plain)
{
    switch ((fr__rpc_kind)r->kind) {
    case FR_RPC_GET_PARAM: return fr_engine_get_param(e, r->param, plain);
    case FR_RPC_SET_PARAM: return fr_engine_set_param(e, r->param, plain);
    case FR_RPC_GET_STATE: return fr_engine_get_state(e, r->which, r->param, plain);
    case FR_RPC_SET_STATE: return fr_engine_set_state(e, r->which, r->param, plain);
    case FR_RPC_GET_GRAD: return fr_engine_get_grad(e, r->param, plain);
    case FR_RPC_SET_MEMORY: return fr_engine_set_memory(e, r->param, plain);
    case FR_RPC_END: break;
    }
    return FR_OK;
}

fr_status fr__rank0_call(fr__setup *s, fr_engine *e, fr__rpc_kind kind, int which, int param,
                         float *plain)
{
    request r = {(int32_t)kind, which, param};
    FR_TRY(fr_team_share(s->team, &r, sizeof r));
    return call(e, &r, plain);
}

/* A call that fails does so on all ranks; rank 0 handles it. */
static fr_status follow(fr__setup *s, fr_engine *e)
{
    for (;;) {
        request r = {0};
        FR_TRY(fr_team_share(s->team, &r, sizeof r));
        if (r.kind == FR_RPC_END) return FR_OK;
        (void)call(e, &r, NULL);
    }
}

fr_status fr__rank0_work(fr__setup *s, fr_engine *e, fr_status (*work)(void *arg), void *arg)
{
    fr_status status, ended;
    if (fr_team_rank(s->team) == 0) {
        fr__failure failure;
        status = work(arg);
        fr__failure_save(s->ctx, &failure);
        ended = fr__rank0_call(s, e, FR_RPC_END, 0, 0, NULL);
        if (status != FR_OK) fr__failure_restore(s->ctx, &failure);
        if (status == FR_OK) status = ended;
    } else {
        status = ended = follow(s, e);
    }
    return ended == FR_OK ? fr_team_agree(s->team, status) : status;
}
