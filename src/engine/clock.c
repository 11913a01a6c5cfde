/* clock.c -- the engine's clock. Emulation (pace.c) takes the place of this file: delete it when
 * pace.c has these two. */
#include "engine/engine.h"

uint64_t fr_engine_now(const fr_engine *e)
{
    (void)e;
    return fr__now_ns();
}

fr_overrun fr_engine_overrun(const fr_engine *e)
{
    (void)e;
    return (fr_overrun){0, 0};
}
