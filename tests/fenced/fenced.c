/* fenced.c -- `ref` on memory that the host cannot read: the example of a backend with memory of
 * its own, and the test that nothing above the backends touches device memory.
 *
 * A device address is in a range without access; its bytes are FENCE behind it. Slots and kernels
 * add FENCE and call those of `ref`. The program ends where the host touches a device address, and
 * where a slot is given a host address for device memory. No address is used twice, so a released
 * block cannot be touched either. */
#include "fenced/fenced.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define REF (&fr__backend_ref)
#define FENCE ((size_t)1 << 36) /* bytes of addresses */
#define PAGE ((size_t)4096)     /* in front of a block, for its size */

static char *fence; /* [2 * FENCE] addresses, then bytes */
static atomic_size_t taken;

static char *map(void *at, size_t bytes, int access)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
    void *mapped = mmap(at, bytes, access, flags, -1, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static void reserve(void) { fence = map(NULL, 2 * FENCE, PROT_NONE); }

/* The bytes behind a device address; NULL stays NULL. */
static void *real(const void *device)
{
    if (!device) return NULL;
    uintptr_t offset = (uintptr_t)device - (uintptr_t)fence;
    if (fence && offset < FENCE) return fence + FENCE + offset;
    fprintf(stderr, "fenced: host address %p given as device memory\n", device);
    abort();
}

static void *fenced_alloc(fr_device *dev, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)dev;
    pthread_once(&once, reserve);
    if (!fence || bytes > FENCE / 2) return NULL;
    size_t whole = (bytes + 2 * PAGE - 1) / PAGE * PAGE;
    size_t at = atomic_fetch_add(&taken, whole + PAGE); /* no access behind it */
    if (at + whole > FENCE) return NULL;
    size_t *head = (void *)map(fence + FENCE + at, whole, PROT_READ | PROT_WRITE);
    if (!head) return NULL;
    *head = whole;
    return fence + at + PAGE;
}

static void fenced_release(fr_device *dev, void *block)
{
    size_t *head = real((char *)block - PAGE);
    (void)dev;
    map(head, *head, PROT_NONE);
}

static fr_status fenced_copy(fr_device *dev, void *to, const void *from, size_t bytes)
{
    return REF->copy(dev, real(to), real(from), bytes);
}

static fr_status fenced_upload(fr_device *dev, void *to, const void *host, size_t bytes)
{
    return REF->upload(dev, real(to), host, bytes);
}

static fr_status fenced_download(fr_device *dev, void *host, const void *from, size_t bytes)
{
    return REF->download(dev, host, real(from), bytes);
}

static fr_status fenced_convert(fr_device *dev, fr_dtype to_type, void *to, fr_dtype from_type,
                                const void *from, size_t n)
{
    return REF->convert(dev, to_type, real(to), from_type, real(from), n);
}

static void fenced_add(fr_device *dev, fr_dtype type, void *y, const void *x, size_t n)
{
    REF->add(dev, type, real(y), real(x), n);
}

static void fenced_blend(fr_device *dev, fr__blend kind, float *y, const float *x, float by,
                         size_t n)
{
    REF->blend(dev, kind, real(y), real(x), by, n);
}

static void fenced_sweep(fr_device *dev, const fr_optimizer *opt, const fr_optim_coef *coef,
                         const fr_sweep *sweep)
{
    fr_sweep s = *sweep;
    s.from = real(s.from), s.to = real(s.to), s.grad = real(s.grad), s.drift = real(s.drift);
    for (int i = 0; i < opt->n_state; i++) s.state[i] = real(s.state[i]);
    for (int i = 0; i < s.n_ahead; i++) s.ahead[i] = real(s.ahead[i]);
    REF->sweep(dev, opt, coef, &s);
}

static void fenced_orthogonalise(fr_device *dev, float *x, const fr_matrix *shape, float *scratch)
{
    REF->orthogonalise(dev, real(x), shape, real(scratch));
}

static void fenced_squares(fr_device *dev, const float *x, const fr__span *spans, size_t n,
                           double *sums)
{
    REF->squares(dev, real(x), spans, n, sums);
}

static void fenced_tree_sum(fr_device *dev, float *to, const float *const *from, int n,
                            size_t count)
{
    const float *terms[FR_TREE_MEMBERS];
    for (int i = 0; i < n; i++) terms[i] = real(from[i]);
    REF->tree_sum(dev, real(to), terms, n, count);
}

static fr_status fenced_pick(fr_device *dev, float *host, fr_dtype type, const void *from, size_t n,
                             size_t stride)
{
    return REF->pick(dev, host, type, real(from), n, stride);
}

/* ---- Kernels ---- */

typedef struct fenced_kernel {
    fr__kernel base; /* what inner says of itself */
    fr__kernel *inner;
    fr__kernel_ops ops; /* those that inner has */
} fenced_kernel;

static fr__kernel *inner_of(fr__kernel *k) { return ((fenced_kernel *)k)->inner; }

static fr__kernel_args real_args(const fr__kernel_args *a)
{
    fr__kernel_args r = *a;
    for (int i = 0; i < FR_MAX_INPUTS; i++) r.x[i] = real(a->x[i]), r.dx[i] = real(a->dx[i]);
    for (int i = 0; i < FR_MAX_PARAMS; i++)
        r.w[i] = real(a->w[i]), r.dw[i] = real(a->dw[i]), r.buffers[i] = real(a->buffers[i]);
    r.y = real(a->y), r.dy = real(a->dy);
    r.saved = real(a->saved), r.scratch = real(a->scratch), r.cache = real(a->cache);
    return r;
}

#define KERNEL_OP(op)                                                     \
    static fr_status fenced_##op(fr__kernel *k, const fr__kernel_args *a) \
    {                                                                     \
        fr__kernel_args r = real_args(a);                                 \
        return inner_of(k)->ops->op(inner_of(k), &r);                     \
    }
KERNEL_OP(forward)
KERNEL_OP(backward_input)
KERNEL_OP(backward_weight)

static fr_status fenced_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    fr__kernel_args r = real_args(a);
    return inner_of(k)->ops->prepare_dy(inner_of(k), &r, real(dz));
}

static void fenced_destroy(fr__kernel *k) { inner_of(k)->ops->destroy(inner_of(k)); }

static fr_status make_floats(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    fenced_kernel *k = FR_ARENA_NEW(arena, fenced_kernel);
    fr_operator op = fr_graph_node(spec->graph, spec->nodes[0])->op;
    *out = NULL;
    if (!k) return fr__no_memory(spec->ctx, sizeof *k, "a kernel");
    FR_TRY(REF->makers[op](spec, arena, &k->inner));
    const fr__kernel_ops *ops = k->inner->ops;
    k->ops = (fr__kernel_ops){
        ops->forward ? fenced_forward : NULL, ops->prepare_dy ? fenced_prepare_dy : NULL,
        ops->backward_input ? fenced_backward_input : NULL,
        ops->backward_weight ? fenced_backward_weight : NULL, ops->destroy ? fenced_destroy : NULL};
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

/* ---- The record: that of ref, but for memory and kernels ---- */

#define TAKE(slot) fenced_backend.slot = fenced_##slot

fr_backend fenced_backend;

__attribute__((constructor(201))) static void fill_record(void)
{
    static fr__kernel_maker makers[FR_OPERATOR_COUNT];
    for (int i = 0; i < FR_OPERATOR_COUNT; i++) makers[i] = REF->makers[i] ? make : NULL;
    fenced_backend = *REF;
    fenced_backend.name = "fenced";
    fenced_backend.summary = "ref on memory that the host cannot read";
    fenced_backend.makers = makers;
    fenced_backend.is_host = false;
    TAKE(alloc), TAKE(release), TAKE(upload), TAKE(download), TAKE(copy), TAKE(convert);
    TAKE(add), TAKE(blend), TAKE(sweep), TAKE(orthogonalise), TAKE(squares), TAKE(tree_sum);
    TAKE(pick);
}
