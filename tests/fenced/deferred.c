/* deferred.c -- the fenced backend behind a queue: a call is queued, and made when its result is
 * required. Code that reads memory without waiting for the calls that write it gets old values.
 *
 * FR_BACKEND=deferred selects it. The next wait returns the failures of queued calls. */
#include "fenced/fenced.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BASE (&fenced_backend)

typedef struct call call;
struct call {
    call *next;
    fr_status (*make)(fr_device *dev, const call *c);
    union {
        struct {
            fr__kernel *kernel;
            fr_status (*op)(fr__kernel *k, const fr__kernel_args *a);
            fr__kernel_args args;
            fr_pass pass;
            void *dz;
        } kernel;
        struct {
            void *to;
            const void *from;
            size_t n;
            fr_dtype to_type, from_type;
            fr__blend blend;
            float by;
        } two;
        struct {
            const fr_optimizer *opt;
            bool has_coef;
            fr_optim_coef coef;
            fr_sweep sweep;
        } sweep;
        struct {
            float *x, *scratch;
            fr_matrix shape;
        } matrix;
        struct {
            float *to;
            int n;
            size_t count;
            const float *from[64];
        } tree;
    } of;
};

typedef struct queue {
    struct queue *next;
    fr_device *dev;
    call *first, **last;
    fr__mark n_put, n_made;
    fr_status status;
} queue;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static queue *queues;

/* A device is used by one thread at a time; sweeps of one update may come from several. */
static queue *queue_of(const fr_device *dev)
{
    queue *q = queues;
    while (q && q->dev != dev) q = q->next;
    return q;
}

static void put(fr_device *dev, const call *what)
{
    call *c = malloc(sizeof *c);
    if (!c) abort();
    *c = *what;
    c->next = NULL;
    pthread_mutex_lock(&lock);
    queue *q = queue_of(dev);
    *q->last = c;
    q->last = &c->next;
    q->n_put++;
    pthread_mutex_unlock(&lock);
}

static call *take(queue *q, fr__mark until)
{
    pthread_mutex_lock(&lock);
    call *c = q->n_made < until ? q->first : NULL;
    if (c) {
        q->first = c->next;
        if (!q->first) q->last = &q->first;
        q->n_made++;
    }
    pthread_mutex_unlock(&lock);
    return c;
}

static fr_status wait_for(fr_device *dev, fr__mark until)
{
    pthread_mutex_lock(&lock);
    queue *q = queue_of(dev);
    pthread_mutex_unlock(&lock);
    for (call *c; (c = take(q, until)) != NULL; free(c)) {
        fr_status status = c->make(dev, c);
        if (q->status == FR_OK) q->status = status;
    }
    fr_status status = q->status;
    q->status = FR_OK;
    return status;
}

static fr__mark deferred_mark(fr_device *dev)
{
    pthread_mutex_lock(&lock);
    fr__mark n = queue_of(dev)->n_put;
    pthread_mutex_unlock(&lock);
    return n;
}

static fr_status deferred_wait(fr_device *dev, fr__mark mark) { return wait_for(dev, mark); }

static fr_status deferred_sync(fr_device *dev)
{
    FR_TRY(wait_for(dev, deferred_mark(dev)));
    return BASE->sync(dev);
}

static fr_status deferred_open(fr_device *dev, const fr_device_desc *desc)
{
    queue *q = calloc(1, sizeof *q);
    if (!q) return FR_NO_MEMORY;
    q->dev = dev;
    q->last = &q->first;
    fr_status status = BASE->open(dev, desc);
    if (status != FR_OK) {
        free(q);
        return status;
    }
    pthread_mutex_lock(&lock);
    q->next = queues;
    queues = q;
    pthread_mutex_unlock(&lock);
    return FR_OK;
}

static void deferred_close(fr_device *dev)
{
    (void)wait_for(dev, deferred_mark(dev));
    pthread_mutex_lock(&lock);
    queue **at = &queues;
    while ((*at)->dev != dev) at = &(*at)->next;
    queue *q = *at;
    *at = q->next;
    pthread_mutex_unlock(&lock);
    free(q);
    BASE->close(dev);
}

/* --- memory: done at once, behind what is queued ---------------------------------------------- */

static void deferred_release(fr_device *dev, void *block)
{
    (void)wait_for(dev, deferred_mark(dev));
    BASE->release(dev, block);
}

static fr_status deferred_upload(fr_device *dev, void *to, const void *host, size_t bytes)
{
    FR_TRY(wait_for(dev, deferred_mark(dev)));
    return BASE->upload(dev, to, host, bytes);
}

static fr_status deferred_download(fr_device *dev, void *host, const void *from, size_t bytes)
{
    FR_TRY(wait_for(dev, deferred_mark(dev)));
    return BASE->download(dev, host, from, bytes);
}

static void deferred_squares(fr_device *dev, const float *x, const fr__span *spans, size_t n,
                             double *sums)
{
    fr_status status = wait_for(dev, deferred_mark(dev));
    pthread_mutex_lock(&lock);
    queue *q = queue_of(dev);
    pthread_mutex_unlock(&lock);
    if (q->status == FR_OK) q->status = status;
    BASE->squares(dev, x, spans, n, sums);
}

static fr_status deferred_pick(fr_device *dev, float *host, fr_dtype type, const void *from,
                               size_t n, size_t stride)
{
    FR_TRY(wait_for(dev, deferred_mark(dev)));
    return BASE->pick(dev, host, type, from, n, stride);
}

/* --- queued ------------------------------------------------------------------------------------
 */

static fr_status make_copy(fr_device *dev, const call *c)
{
    return BASE->copy(dev, c->of.two.to, c->of.two.from, c->of.two.n);
}

static fr_status make_convert(fr_device *dev, const call *c)
{
    return BASE->convert(dev, c->of.two.to_type, c->of.two.to, c->of.two.from_type, c->of.two.from,
                         c->of.two.n);
}

static fr_status make_add(fr_device *dev, const call *c)
{
    BASE->add(dev, c->of.two.to_type, c->of.two.to, c->of.two.from, c->of.two.n);
    return FR_OK;
}

static fr_status make_blend(fr_device *dev, const call *c)
{
    BASE->blend(dev, c->of.two.blend, c->of.two.to, c->of.two.from, c->of.two.by, c->of.two.n);
    return FR_OK;
}

static fr_status make_sweep(fr_device *dev, const call *c)
{
    BASE->sweep(dev, c->of.sweep.opt, c->of.sweep.has_coef ? &c->of.sweep.coef : NULL,
                &c->of.sweep.sweep);
    return FR_OK;
}

static fr_status make_orthogonal(fr_device *dev, const call *c)
{
    BASE->orthogonalise(dev, c->of.matrix.x, &c->of.matrix.shape, c->of.matrix.scratch);
    return FR_OK;
}

static fr_status make_tree(fr_device *dev, const call *c)
{
    BASE->tree_sum(dev, c->of.tree.to, c->of.tree.from, c->of.tree.n, c->of.tree.count);
    return FR_OK;
}

static fr_status deferred_copy(fr_device *dev, void *to, const void *from, size_t bytes)
{
    put(dev, &(call){.make = make_copy, .of.two = {.to = to, .from = from, .n = bytes}});
    return FR_OK;
}

static fr_status deferred_convert(fr_device *dev, fr_dtype to_type, void *to, fr_dtype from_type,
                                  const void *from, size_t n)
{
    put(dev, &(call){.make = make_convert,
                     .of.two = {to, from, n, .to_type = to_type, .from_type = from_type}});
    return FR_OK;
}

static void deferred_add(fr_device *dev, fr_dtype type, void *y, const void *x, size_t n)
{
    put(dev, &(call){.make = make_add, .of.two = {.to = y, .from = x, .n = n, .to_type = type}});
}

static void deferred_blend(fr_device *dev, fr__blend kind, float *y, const float *x, float by,
                           size_t n)
{
    put(dev, &(call){.make = make_blend,
                     .of.two = {.to = y, .from = x, .n = n, .blend = kind, .by = by}});
}

static void deferred_sweep(fr_device *dev, const fr_optimizer *opt, const fr_optim_coef *coef,
                           const fr_sweep *sweep)
{
    call c = {.make = make_sweep, .of.sweep = {.opt = opt, .sweep = *sweep}};
    if (coef) c.of.sweep.has_coef = true, c.of.sweep.coef = *coef;
    put(dev, &c);
}

static void deferred_orthogonalise(fr_device *dev, float *x, const fr_matrix *shape, float *scratch)
{
    put(dev, &(call){.make = make_orthogonal,
                     .of.matrix = {.x = x, .scratch = scratch, .shape = *shape}});
}

static void deferred_tree_sum(fr_device *dev, float *to, const float *const *from, int n,
                              size_t count)
{
    call c = {.make = make_tree, .of.tree = {.to = to, .n = n, .count = count}};
    if (n > 64) abort();
    memcpy(c.of.tree.from, from, (size_t)n * sizeof *from);
    put(dev, &c);
}

/* --- kernels ------------------------------------------------------------------------------------
 */

typedef struct deferred_kernel {
    fr__kernel base; /* what inner says of itself */
    fr__kernel *inner;
    fr__kernel_ops ops;
} deferred_kernel;

static fr__kernel *inner_of(fr__kernel *k) { return ((deferred_kernel *)k)->inner; }

static fr_status make_kernel(fr_device *dev, const call *c)
{
    fr__kernel_args a = c->of.kernel.args;
    (void)dev;
    a.pass = &c->of.kernel.pass;
    if (!c->of.kernel.op)
        return c->of.kernel.kernel->ops->prepare_dy(c->of.kernel.kernel, &a, c->of.kernel.dz);
    return c->of.kernel.op(c->of.kernel.kernel, &a);
}

static fr_status put_kernel(fr__kernel *k, const fr__kernel_args *a, void *dz,
                            fr_status (*op)(fr__kernel *k, const fr__kernel_args *a))
{
    put(k->dev, &(call){.make = make_kernel, .of.kernel = {inner_of(k), op, *a, *a->pass, dz}});
    return FR_OK;
}

static fr_status deferred_forward(fr__kernel *k, const fr__kernel_args *a)
{
    return put_kernel(k, a, NULL, inner_of(k)->ops->forward);
}
static fr_status deferred_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    return put_kernel(k, a, NULL, inner_of(k)->ops->backward_input);
}
static fr_status deferred_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    return put_kernel(k, a, NULL, inner_of(k)->ops->backward_weight);
}
static fr_status deferred_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    return put_kernel(k, a, dz, NULL);
}
static void deferred_destroy(fr__kernel *k) { inner_of(k)->ops->destroy(inner_of(k)); }

static fr_status make_floats(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    deferred_kernel *k = FR_ARENA_NEW(arena, deferred_kernel);
    fr_operator op = fr_graph_node(spec->graph, spec->nodes[0])->op;
    *out = NULL;
    if (!k) return fr__no_memory(spec->ctx, sizeof *k, "a kernel");
    FR_TRY(BASE->makers[op](spec, arena, &k->inner));
    const fr__kernel_ops *ops = k->inner->ops;
    k->ops = (fr__kernel_ops){ops->forward ? deferred_forward : NULL,
                              ops->prepare_dy ? deferred_prepare_dy : NULL,
                              ops->backward_input ? deferred_backward_input : NULL,
                              ops->backward_weight ? deferred_backward_weight : NULL,
                              ops->destroy ? deferred_destroy : NULL};
    k->base = *k->inner;
    k->base.ops = &k->ops;
    *out = &k->base;
    return FR_OK;
}

/* Outside, since conversions are calls of this device, too. */
static fr_status make(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    return fr__kernel_in_floats(spec, arena, make_floats, out);
}

/* --- the record ----------------------------------------------------------------------------------
 */

#define TAKE(slot) deferred_backend.slot = deferred_##slot

fr_backend deferred_backend;

__attribute__((constructor(202))) static void fill_record(void)
{
    static fr__kernel_maker makers[FR_OPERATOR_COUNT];
    for (int i = 0; i < FR_OPERATOR_COUNT; i++) makers[i] = BASE->makers[i] ? make : NULL;
    deferred_backend = *BASE;
    deferred_backend.name = "deferred";
    deferred_backend.summary = "the fenced backend behind a queue";
    deferred_backend.makers = makers;
    TAKE(open), TAKE(close), TAKE(release), TAKE(upload), TAKE(download), TAKE(sync);
    TAKE(mark), TAKE(wait), TAKE(copy), TAKE(convert), TAKE(add), TAKE(blend), TAKE(sweep);
    TAKE(orthogonalise), TAKE(squares), TAKE(tree_sum), TAKE(pick);
}
