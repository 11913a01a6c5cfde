/* hold.c -- the rule of frozen weights: an update copies them, and a prediction is a copy, too.
 *
 * Not in the registry. Gradients and state are not touched. */
#include "optim/optim.h"
#include "optim/sweep.h"

#include <string.h>

static void put_aheads(const fr_sweep *s)
{
    for (int j = 0; j < s->n_ahead; j++) {
        if (!s->ahead_is_bf16) {
            memcpy(s->ahead[j], s->from, s->n * sizeof(float));
            continue;
        }
        uint16_t *to = s->ahead[j];
        for (size_t i = 0; i < s->n; i++) to[i] = fr__bf16_of(s->from[i]);
    }
}

static void step(const fr_optim_coef *c, const fr_sweep *s)
{
    (void)c;
    if (s->to != s->from) memcpy(s->to, s->from, s->n * sizeof(float));
    put_aheads(s);
}

const fr_optimizer fr__optim_hold = {.name = "hold", .step = step, .predict = put_aheads};
