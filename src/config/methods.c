/* methods.c -- the ways to spread a run over workers: a name for a schedule, a weight policy and
 * how replicas are kept in sync. A new one is an entry in the list; `parallel.weights`,
 * `parallel.sync` and `parallel.schedule_file` mix others. */
#include <forerun/train.h>

#include "base/names.h"

/* name, summary, generator, policy, then what else is special */
/* clang-format off */
#define METHOD(...) &(const fr_method){.name = __VA_ARGS__}

static const fr_method *const methods[] = {
    METHOD("single", "one worker holds the whole model: the reference for all others",
           "sequential", "live", .max_stages = 1),
    METHOD("dp", "replicas of the whole model, gradients all-reduced before each update",
           "sequential", "live", .max_stages = 1, .wants_replicas = true),
    METHOD("model-averaging", "replicas of the whole model that step alone and average weights",
           "sequential", "live", .max_stages = 1, .sync = "average", .wants_replicas = true),
    METHOD("naive-mp", "one micro-batch at a time through all stages", "sequential", "live"),

    /* The pipeline drains before each update: weights are those of `single`, to the bit. */
    METHOD("gpipe", "all forwards, then all backwards, flush", "gpipe", "live"),
    METHOD("1f1b", "one forward, one backward, flush (DAPPLE)", "1f1b", "live"),
    METHOD("interleaved", "1F1B over several chunks per worker, flush (Megatron)",
           "interleaved", "live", .chunks = 2),
    METHOD("zb-h1", "1F1B with weight gradients in the bubbles, flush (zero bubble)",
           "zb-h1", "live"),
    METHOD("zb-h2", "zb-h1 with twice the memory and no gap between mini-batches, flush",
           "zb-h2", "live"),
    METHOD("zbv", "two stages per worker in a V, no gap between mini-batches, flush",
           "zbv", "live", .chunks = 2),
    METHOD("v-half", "two stages per worker in a V, half the activations of 1f1b, flush",
           "v-half", "live", .chunks = 2),
    METHOD("v-min", "two stages per worker in a V, a third of the activations of 1f1b, flush",
           "v-min", "live", .chunks = 2),
    METHOD("dualpipev", "two stages per worker in a V, few backwards split, flush",
           "dualpipev", "live", .chunks = 2),

    /* The pipeline stays full; the policy decides which weights a pass reads. */
    METHOD("vanilla-async", "1F1B without flush on the newest weights: stale gradients",
           "1f1b-async", "live", .is_by_name = true),
    METHOD("pipedream", "1F1B without flush, backward on the weights of its forward",
           "1f1b-async", "stash"),
    METHOD("pipedream-2bw", "two versions, every stage one update late (micro >= stages)",
           "1f1b-async", "double-buffer"),
    METHOD("spectrain", "both passes on predicted weights", "1f1b-async", "spectrain",
           .is_preferred = true),
    METHOD("spectrain-v2", "predicted in the forward, kept for the backward",
           "1f1b-async", "spectrain-v2"),
    METHOD("xpipe", "one prediction for a whole mini-batch (bellwether)", "1f1b-async", "xpipe"),
    METHOD("pipeoptim", "forward on predicted weights, backward on the newest",
           "1f1b-async", "pipeoptim"),
    METHOD("decay-aware", "like pipeoptim, future gradients taken as zero (FTPipe-style)",
           "1f1b-async", "decay-aware"),
    METHOD("pipemare", "rates by delay, backward weights corrected by drift (PipeMare-style)",
           "1f1b-async", "pipemare"),
    METHOD("forerun", "forward predicted past its backward; rates and momentum by delay",
           "1f1b-async", "lookahead"),
    METHOD("paci", "the newest weights, gradients summed over the mini-batch, no barrier",
           "1f1b-async", "live", .is_by_name = true),
    METHOD("nesterov-async", "pipedream for the optimizer nadam with beta1 0.99",
           "1f1b-async", "stash", .optimizer = "nadam"),
    METHOD("timeprest", "a mini-batch of forwards, then its backwards (TiMePReSt-style)",
           "nf1b", "live", .is_by_name = true),
    NULL,
};
/* clang-format on */

FR_REGISTRY(fr_method, methods, fr_method_list, fr_method_find)
