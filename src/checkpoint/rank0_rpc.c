/* rank0_rpc.c -- announcing and following. */
#include "checkpoint/rank0_rpc.h"

#include "base/ctx.h"
#include <forerun/state.h>

typedef struct touch {
    int32_t kind, which, param;
} touch;

static fr_status call(fr_engine *e, const touch *t, float *plain)
{
    switch ((fr_touch_kind)t->kind) {
    case FR_GET_PARAM: return fr_engine_get_param(e, t->param, plain);
    case FR_SET_PARAM: return fr_engine_set_param(e, t->param, plain);
    case FR_GET_STATE: return fr_engine_get_state(e, t->which, t->param, plain);
    case FR_SET_STATE: return fr_engine_set_state(e, t->which, t->param, plain);
    case FR_GET_GRAD: return fr_engine_get_grad(e, t->param, plain);
    case FR_SET_MEMORY: return fr_engine_set_memory(e, t->param, plain);
    case FR_TOUCH_END: break;
    }
    return FR_OK;
}

fr_status fr__touch(fr_setup *s, fr_engine *e, fr_touch_kind kind, int which, int param,
                    float *plain)
{
    touch t = {(int32_t)kind, which, param};
    FR_TRY(fr_team_share(s->team, &t, sizeof t));
    return call(e, &t, plain);
}

/* A call that fails does so everywhere; rank 0 knows what to make of it. */
static fr_status follow(fr_setup *s, fr_engine *e)
{
    for (;;) {
        touch t = {0};
        FR_TRY(fr_team_share(s->team, &t, sizeof t));
        if (t.kind == FR_TOUCH_END) return FR_OK;
        (void)call(e, &t, NULL);
    }
}

fr_status fr__lead(fr_setup *s, fr_engine *e, fr_status (*work)(void *arg), void *arg)
{
    fr_status status, told;
    if (fr_team_rank(s->team) == 0) {
        fr_failure failure;
        status = work(arg);
        fr__failure_save(s->ctx, &failure);
        told = fr__touch(s, e, FR_TOUCH_END, 0, 0, NULL);
        if (status != FR_OK) fr__failure_restore(s->ctx, &failure);
        if (status == FR_OK) status = told;
    } else {
        status = told = follow(s, e);
    }
    return told == FR_OK ? fr_team_agree(s->team, status) : status;
}
