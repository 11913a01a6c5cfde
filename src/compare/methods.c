/* methods.c -- cases from names of methods. Each case has the workers of the config, in a layout
 * that suits the method.
 *
 *     single             one worker
 *     dp, ...            all workers are replicas
 *     pipelines          stages, cuts and replicas of the config, or as many stages as workers
 *
 * train.micro is that of the config, raised to the minimum of the method. If it is omitted, flush
 * schedules get four micro-batches per stage, which limits their bubble, and the others get their
 * minimum. */
#include "compare/compare.h"

#include <forerun/sched.h>

#include <string.h>

struct layout {
    int64_t stages;   /* workers of one pipeline */
    int64_t replicas; /* pipelines; 0: a list, one number per stage */
    int64_t workers;
    int64_t chunks, batch, micro; /* micro 0: omitted */
};

static fr_status check_keys(fr_compare *c, fr_conf *parallel)
{
    static const char *const keys[] = {"weights", "schedule_file", "devices"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (fr_conf_has(parallel, keys[i]))
            return fr_conf_fail(
                parallel, keys[i],
                "--methods compares methods unchanged, but parallel.%s would change all of them; "
                "omit it, or write the cases into a section `compare`",
                keys[i]);
    (void)c;
    return FR_OK;
}

static fr_status read_layout(fr_conf *root, fr_conf *parallel, struct layout *l)
{
    enum { MOST = 1024 };
    int64_t list[MOST];
    const char *cuts[MOST];
    int n_list = 0, n_cuts = 0;
    fr_conf *train;
    FR_TRY(fr_conf_section(root, "train", &train));
    FR_TRY(
        fr__key_read(train, fr__key_find(fr__settings_keys(), "train.", "batch", NULL), &l->batch));
    FR_TRY(fr_conf_int(train, "micro", 0, 1, 1 << 24, &l->micro));
    FR_TRY(fr_conf_texts(parallel, "cuts", MOST, cuts, &n_cuts));
    FR_TRY(fr_conf_ints(parallel, "replicas", MOST, list, &n_list));
    FR_TRY(fr_conf_int(parallel, "chunks", 0, 1, MOST, &l->chunks));
    FR_TRY(fr_conf_int(parallel, "stages",
                       n_cuts       ? n_cuts + 1
                       : n_list > 1 ? n_list
                                    : 1,
                       1, MOST, &l->stages));
    l->replicas = n_list > 1 ? 0 : n_list ? list[0] : 1;
    if (l->chunks > 1 && l->stages % l->chunks == 0) l->stages /= l->chunks;
    l->workers = l->stages * l->replicas;
    for (int i = 0; n_list > 1 && i < n_list; i++) l->workers += list[i];
    if (l->workers < 2) l->workers = 2;
    return FR_OK;
}

static int64_t up_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static int64_t micro_of(const fr_method *m, const struct layout *l, int64_t stages, int64_t chunks,
                        int64_t replicas)
{
    const fr_generator *g = fr_generator_find(m->generator);
    bool is_pipeline = m->max_stages != 1;
    bool is_flush = g->is_flush && is_pipeline && g->ahead != FR_AHEAD_ONE;
    int64_t n = l->micro;
    if (!n && is_flush)
        for (n = 4 * stages * replicas; n > stages * replicas && l->batch % n != 0;) n /= 2;
    if (fr_policy_find(m->policy)->needs_micro && n < stages * replicas) n = stages * replicas;
    n = up_to(n > 0 ? n : 1, replicas);
    fr_schedule_desc d = {.n_stages = (int)(stages * chunks), .chunks = (int)chunks};
    for (;; n += replicas) { /* every generator takes some multiple of its workers */
        d.n_micro = (int)(n / replicas);
        if (!g->check || !g->check(&d)) return n;
    }
}

/* A method made for one optimizer uses it with its defaults: learning rates of other optimizers do
 * not apply. */
static fr_status add_optimizer(fr_compare *c, fr_conf *root, const fr_method *m, struct fr__case *k)
{
    fr_conf *train, *optimizer;
    const char *name;
    if (!m->optimizer) return FR_OK;
    FR_TRY(fr_conf_section(root, "train", &train));
    FR_TRY(fr_conf_section(train, "optimizer", &optimizer));
    FR_TRY(fr_conf_text(optimizer, "name", "", &name));
    if (strcmp(name, m->optimizer) == 0) return FR_OK;
    return fr__case_add(c, k, "train.optimizer={name: %s, beta1: 0.99}", m->optimizer);
}

fr_status fr__compare_method_sets(fr_compare *c, fr_conf *root, const fr_method *m,
                                  struct fr__case *k)
{
    struct layout l = {0};
    fr_conf *parallel;
    FR_TRY(fr_conf_section(root, "parallel", &parallel));
    FR_TRY(check_keys(c, parallel));
    FR_TRY(read_layout(root, parallel, &l));
    bool is_whole = m->max_stages == 1;                /* every worker has the whole model */
    bool is_given = l.stages > 1 && !is_whole;         /* the config has a pipeline */
    bool is_v = fr_generator_find(m->generator)->is_v; /* two per worker, whatever the config has */
    int64_t chunks = m->chunks > 1 ? (l.chunks > 1 && !is_v ? l.chunks : m->chunks) : 1;
    int64_t stages = is_whole ? 1 : is_given ? l.stages : l.workers;
    int64_t replicas = m->wants_replicas ? l.workers : is_given ? l.replicas : 1;
    FR_TRY(fr__case_add(c, k, "parallel.method=%s", m->name));
    if (chunks > 1 || !is_given) FR_TRY(fr__case_add(c, k, "parallel.cuts=[]"));
    FR_TRY(fr__case_add(c, k, "parallel.stages=%lld", (long long)(stages * chunks)));
    FR_TRY(fr__case_add(c, k, "parallel.chunks=%lld", (long long)chunks));
    if (replicas > 0) FR_TRY(fr__case_add(c, k, "parallel.replicas=%lld", (long long)replicas));
    FR_TRY(add_optimizer(c, root, m, k));
    return fr__case_add(c, k, "train.micro=%lld",
                        (long long)micro_of(m, &l, stages, chunks, replicas > 0 ? replicas : 1));
}
