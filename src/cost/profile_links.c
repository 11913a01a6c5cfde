/* profile_links.c -- links between the stages of a cut, and their bytes.
 *
 * The rules are those of fr_graph_links: a value goes to each stage that reads it. Its gradient
 * goes from the last reader to the reader before it, and from the first reader to the producer;
 * each reader adds its own part. */
#include "cost/profile.h"

#include <stdlib.h>

struct flow {
    fr_stage_link link;
    size_t bytes;
};

struct flows {
    struct flow *at; /* (room for all pairs) */
    int n;
};

/* Links are added stage by stage, so an existing link is near the end. */
static void add(struct flows *f, int from, int to, int64_t bytes)
{
    for (int i = f->n - 1; i >= 0; i--)
        if (f->at[i].link.from == from && f->at[i].link.to == to) {
            f->at[i].bytes += (size_t)bytes;
            return;
        }
    f->at[f->n++] = (struct flow){{from, to}, (size_t)bytes};
}

static int compare(const void *a, const void *b)
{
    const fr_stage_link *x = &((const struct flow *)a)->link, *y = &((const struct flow *)b)->link;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static void hand_out(struct flows *f, int *n, fr_stage_link *links, size_t *bytes)
{
    qsort(f->at, (size_t)f->n, sizeof *f->at, compare);
    *n = f->n;
    for (int i = 0; i < f->n; i++) {
        links[i] = f->at[i].link;
        if (bytes) bytes[i] = f->at[i].bytes;
    }
}

static fr_status check_cuts(fr_ctx *ctx, const fr_profile *p, int n_stages, const int *cuts)
{
    int from = 0;
    for (int k = 0; k < n_stages; k++) {
        int to = k < n_stages - 1 ? cuts[k] : p->n_nodes;
        bool has_work = false;
        if (to <= from || to > p->n_nodes)
            return fr_fail(
                ctx, FR_INVALID,
                "profile of %s: cut %d is before node %d; cuts must ascend and be between 1 and %d",
                p->model, k, to, p->n_nodes - 1);
        for (int i = from; i < to; i++) has_work |= !p->nodes[i].is_input;
        if (!has_work)
            return fr_fail(ctx, FR_INVALID,
                           "profile of %s: stage %d (nodes %d to %d) holds inputs only; move its "
                           "cut",
                           p->model, k, from, to - 1);
        from = to;
    }
    return FR_OK;
}

/* next[x]: the stage that the next reader of x sends its gradient to. */
static void follow(const fr_profile *p, int n_stages, const int *cuts, int *made_in, int *next,
                   struct flows *forward, struct flows *backward)
{
    const struct fr__profile_store *s = p->arena;
    for (int k = 0, i = 0; k < n_stages; k++)
        for (int last = k < n_stages - 1 ? cuts[k] : p->n_nodes; i < last; i++) {
            made_in[i] = next[i] = k;
            for (int j = 0; j < p->nodes[i].n_inputs; j++) {
                int x = p->nodes[i].inputs[j];
                /* next[x] == k: stage k already reads x, or produces it. */
                if (p->nodes[x].is_input || next[x] == k) continue;
                int64_t bytes = p->nodes[x].output_bytes;
                add(forward, made_in[x], k, bytes);
                if (s->has_grad[x]) add(backward, k, next[x], bytes);
                next[x] = k;
            }
        }
}

fr_status fr_profile_links(fr_ctx *ctx, const fr_profile *p, int n_stages, const int *cuts,
                           int *n_forward, fr_stage_link *forward, size_t *forward_bytes,
                           int *n_backward, fr_stage_link *backward, size_t *backward_bytes)
{
    const struct fr__profile_store *s = p->arena;
    *n_forward = *n_backward = 0;
    if (!s || !s->has_grad)
        return fr_fail(
            ctx, FR_INVALID,
            "profile of %s: incomplete; make it by fr_profile_copy or read it from a file",
            p->model ? p->model : "?");
    FR_TRY(check_cuts(ctx, p, n_stages, cuts));
    size_t n_pairs = (size_t)n_stages * (size_t)(n_stages - 1) / 2, n_inputs = 0;
    for (int i = 0; i < p->n_nodes; i++) n_inputs += (size_t)p->nodes[i].n_inputs;
    size_t room = n_inputs < n_pairs ? n_inputs : n_pairs;
    int *stage_of = FR_NEW_ARRAY(int, 2 * p->n_nodes);
    struct flow *flows = FR_NEW_ARRAY(struct flow, 2 * room + 1);
    fr_status status = FR_OK;
    if (stage_of && flows) {
        struct flows f = {.at = flows}, b = {.at = flows + room};
        follow(p, n_stages, cuts, stage_of, stage_of + p->n_nodes, &f, &b);
        hand_out(&f, n_forward, forward, forward_bytes);
        hand_out(&b, n_backward, backward, backward_bytes);
    } else {
        status = fr__no_memory(ctx, room * sizeof *flows, "the links of a cut");
    }
    fr__free(stage_of);
    fr__free(flows);
    return status;
}
