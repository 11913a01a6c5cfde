/* registry.c -- the table of generators. */
#include "base/names.h"
#include "sched/sched.h"

/* clang-format off */
static const fr_generator *const generators[] = {
    &fr__gen_sequential,
    &fr__gen_gpipe,
    &fr__gen_1f1b,
    &fr__gen_1f1b_async,
    &fr__gen_interleaved,
    &fr__gen_zb_h1,
    &fr__gen_zb_h2,
    &fr__gen_zbv,
    &fr__gen_v_half,
    &fr__gen_v_min,
    &fr__gen_dualpipev,
    &fr__gen_nf1b,
    &fr__gen_forward,
    NULL,
};
/* clang-format on */

FR_REGISTRY(fr_generator, generators, fr_generator_list, fr_generator_find)
