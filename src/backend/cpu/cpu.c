/* cpu.c -- the cpu backend: oneDNN and vectorised sweeps on OpenMP threads.
 *
 * The thread count is OpenMP's, a property of the thread that opens the device, and fixed before
 * any primitive is made. Thread teams always have that size: a smaller one would end threads of the
 * pool, and their replacements would not be pinned. */
#include "backend/cpu/cpu.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/simd.h"
#include "base/thread.h"

/* X(operator, maker, takes inputs in any layout, takes bf16) */
#define MAKERS(X)                                      \
    X(CONV2D, fr__cpu_conv2d, true, true)              \
    X(BATCH_NORM, fr__cpu_batch_norm, true, true)      \
    X(MAX_POOL, fr__cpu_max_pool, true, true)          \
    X(AVG_POOL, fr__cpu_pool, true, false)             \
    X(GLOBAL_POOL, fr__cpu_pool, true, false)          \
    X(CONCAT, fr__cpu_concat, true, true)              \
    X(SLICE, fr__cpu_move, false, true)                \
    X(SELECT, fr__cpu_move, false, true)               \
    X(TRANSPOSE, fr__cpu_move, false, true)            \
    X(PAD, fr__cpu_move, false, true)                  \
    X(RESHAPE, fr__cpu_flatten, false, false)          \
    X(FLATTEN, fr__cpu_flatten, false, false)          \
    X(LINEAR, fr__cpu_linear, false, true)             \
    X(MATMUL, fr__cpu_matmul, false, false)            \
    X(LAYER_NORM, fr__cpu_layer_norm, false, true)     \
    X(RELU, fr__cpu_activation, true, true)            \
    X(GELU, fr__cpu_activation, true, true)            \
    X(SELU, fr__cpu_activation, true, true)            \
    X(TANH, fr__cpu_activation, true, true)            \
    X(SIGMOID, fr__cpu_activation, true, true)         \
    X(SILU, fr__cpu_activation, true, true)            \
    X(GELU_EXACT, fr__cpu_activation, true, true)      \
    X(RELU6, fr__cpu_activation, true, true)           \
    X(HARDSWISH, fr__cpu_activation, true, true)       \
    X(HARDSIGMOID, fr__cpu_activation, true, true)     \
    X(LEAKY_RELU, fr__cpu_activation, true, true)      \
    X(ELU, fr__cpu_activation, true, true)             \
    X(MUL, fr__cpu_binary, true, true)                 \
    X(SUBTRACT, fr__cpu_binary, true, true)            \
    X(SOFTMAX, fr__cpu_softmax, false, true)           \
    X(RMS_NORM, fr__cpu_rms_norm, false, true)         \
    X(GROUP_NORM, fr__cpu_group_norm, false, false)    \
    X(ROPE, fr__cpu_rope, false, true)                 \
    X(STOCHASTIC_DEPTH, fr__cpu_depth, true, true)     \
    X(DROPOUT, fr__cpu_dropout, true, true)            \
    X(ALPHA_DROPOUT, fr__cpu_dropout, true, true)      \
    X(ADD, fr__cpu_sum, true, true)                    \
    X(EMBEDDING, fr__cpu_embedding, false, true)       \
    X(ATTENTION, fr__cpu_attention, false, true)       \
    X(CROSS_ATTENTION, fr__cpu_attention, false, true) \
    X(SDPA, fr__cpu_attention, false, true)            \
    X(LSTM, fr__cpu_lstm, false, false)                \
    X(REVERSE_TIME, fr__cpu_rows, false, true)         \
    X(MEAN_TIME, fr__cpu_time, false, false)           \
    X(LAST_TIME, fr__cpu_time, false, false)           \
    X(CROSS_ENTROPY, fr__cpu_loss, false, true)        \
    X(MSE, fr__cpu_distance, false, false)             \
    X(SMOOTH_L1, fr__cpu_distance, false, false)       \
    X(BCE, fr__cpu_distance, false, false)             \
    X(COSINE, fr__cpu_distance, false, false)

static const struct {
    fr__kernel_maker make;
    bool takes_any_layout, takes_bf16;
} kinds[FR_OPERATOR_COUNT] = {
#define ROW(op, maker, any, bf16) [FR_OP_##op] = {maker, any, bf16},
    MAKERS(ROW)
#undef ROW
};

static bool takes_layouts(const fr__kernel_spec *spec, fr_operator op)
{
    bool are_plain = true;
    for (int i = 0; i < spec->n_inputs; i++) are_plain = are_plain && !spec->x[i]->desc;
    return are_plain || kinds[op].takes_any_layout;
}

static fr_status make_floats(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    fr_operator op = fr_graph_node(spec->graph, spec->nodes[0])->op;
    if (takes_layouts(spec, op)) return kinds[op].make(spec, arena, out);
    return fr__cpu_wrap_plain(spec, arena, kinds[op].make, out);
}

/* Images may be blocked. Whether one is depends on the cut, so its kernel must not depend on it. */
static bool takes_bf16(const fr__kernel_spec *spec, fr_operator op)
{
    bool has_image = false;
    for (int i = 0; i < spec->n_inputs; i++)
        has_image |= fr_graph_node(spec->graph, spec->inputs[i])->shape.n_dims > 2;
    return kinds[op].takes_bf16 && (kinds[op].takes_any_layout || !has_image);
}

static fr_status make(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    fr_operator op = fr_graph_node(spec->graph, spec->nodes[0])->op;
    if (takes_bf16(spec, op) && takes_layouts(spec, op)) return kinds[op].make(spec, arena, out);
    return fr__kernel_in_floats(spec, arena, make_floats, out);
}

static const fr__kernel_maker makers[FR_OPERATOR_COUNT] = {
#define ROW(op, maker, any, bf16) [FR_OP_##op] = make,
    MAKERS(ROW)
#undef ROW
};

/* ---- Device ---- */

static void cpu_library(char *text, size_t room)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, room, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

/* The caller is also a thread of the region: once pinned, its affinity mask no longer shows the
 * other cores. */
static fr_status pin_threads(fr_device *dev, int first_cpu)
{
    const int n_cores = fr__cpu_count();
    int cores[CPU_SETSIZE], n_failed = 0;
    if (first_cpu < 0 || first_cpu > n_cores - dev->n_threads)
        return fr_fail(dev->ctx, FR_INVALID,
                       "cannot pin %d threads from core %d on; this process may use %d cores, "
                       "counted from 0",
                       dev->n_threads, first_cpu, n_cores);
    for (int i = 0; i < dev->n_threads; i++) cores[i] = fr__nth_cpu(first_cpu + i);
#pragma omp parallel reduction(+ : n_failed)
    {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((unsigned)cores[omp_get_thread_num()], &set);
        n_failed += pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0;
    }
    if (!n_failed) return FR_OK;
    return fr_fail(dev->ctx, FR_INVALID, "the system refused to pin %d of %d threads", n_failed,
                   dev->n_threads);
}

static dnnl_status_t open_dnnl(fr__cpu_device *cpu)
{
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    cpu->lanes = (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core ? 16 : 8;
    cpu->multiplies_bf16 = fr__cpu_computes_bf16();
    dnnl_status_t s = dnnl_engine_create(&cpu->engine, dnnl_cpu, 0);
    if (!s) s = dnnl_stream_create(&cpu->stream, cpu->engine, dnnl_stream_default_flags);
    if (!s) s = dnnl_primitive_attr_create(&cpu->attr);
    if (!s) s = dnnl_primitive_attr_set_scratchpad_mode(cpu->attr, dnnl_scratchpad_mode_user);
    return s;
}

static void cpu_close(fr_device *dev)
{
    fr__cpu_device *cpu = dev->impl;
    fr__md_fini(cpu);
    if (cpu->attr) dnnl_primitive_attr_destroy(cpu->attr);
    if (cpu->stream) dnnl_stream_destroy(cpu->stream);
    if (cpu->engine) dnnl_engine_destroy(cpu->engine);
    fr__free(cpu);
}

/* oneDNN and OpenMP abort when the address space is exhausted. Before the first tensor they need
 * about this much (generated code, thread stacks). */
static fr_status check_address_space(fr_ctx *ctx)
{
    enum { NEED_MB = 64 };
    struct rlimit limit;
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu", &pages) != 1) pages = 0;
    if (f) fclose(f);
    double taken = (double)pages * (double)sysconf(_SC_PAGESIZE);
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || pages == 0 ||
        taken + NEED_MB * 1e6 <= (double)limit.rlim_cur)
        return FR_OK;
    return fr_fail(ctx, FR_NO_MEMORY,
                   "the address space is limited to %.0f MB and %.0f MB of it are taken; the cpu "
                   "backend needs %d MB more before it computes: raise the limit (ulimit -v)",
                   (double)limit.rlim_cur / 1e6, taken / 1e6, NEED_MB);
}

static fr_status cpu_open(fr_device *dev, const fr_device_desc *desc)
{
    FR_TRY(check_address_space(dev->ctx));
    if (desc->n_threads < 0)
        return fr_fail(dev->ctx, FR_INVALID, "%d threads; give 0 for all cores, or more",
                       desc->n_threads);
    dev->n_threads = desc->n_threads ? desc->n_threads : fr__cpu_count();
    omp_set_dynamic(0);
    omp_set_num_threads(dev->n_threads);
    if (desc->pin) FR_TRY(pin_threads(dev, desc->first_cpu));
    fr__cpu_device *cpu = FR_NEW(fr__cpu_device);
    if (!cpu) return fr__no_memory(dev->ctx, sizeof *cpu, "a cpu device");
    dev->impl = cpu;
    pthread_mutex_init(&cpu->lock, NULL);
    dnnl_status_t status = open_dnnl(cpu);
    if (status != dnnl_success) {
        cpu_close(dev);
        return fr_fail(dev->ctx, FR_INTERNAL, "oneDNN failed to start (status %d)", (int)status);
    }
    char library[32], isa[32];
    cpu_library(library, sizeof library);
    fr__cpu_instructions(isa, sizeof isa);
    snprintf(dev->about, sizeof dev->about, "%s, %s, %d thread%s", library, isa, dev->n_threads,
             dev->n_threads == 1 ? "" : "s");
    return FR_OK;
}

/* ---- Memory ---- */

static fr_status cpu_sync(fr_device *dev)
{
    dnnl_status_t status = dnnl_stream_wait(fr__cpu(dev)->stream);
    if (status == dnnl_success) return FR_OK;
    return fr_fail(dev->ctx, FR_INTERNAL, "oneDNN failed (status %d)", (int)status);
}

#define ZERO_GRAIN ((size_t)2 << 20) /* bytes: a huge page, first touched by one thread */

static void zero_range(void *arg, size_t begin, size_t end)
{
    memset((char *)arg + begin, 0, end - begin);
}

/* Allocating a large block mostly costs page faults: all threads share them. */
static void *cpu_alloc(fr_device *dev, size_t bytes)
{
    void *block = fr__alloc_raw(bytes);
    if (block) fr__cpu_parallel(dev, bytes, ZERO_GRAIN, zero_range, block);
    return block;
}

#define COPY_GRAIN ((size_t)1 << 20) /* bytes */

typedef struct copying {
    char *to;
    const char *from;
} copying;

static void copy_range(void *arg, size_t begin, size_t end)
{
    const copying *c = arg;
    memcpy(c->to + begin, c->from + begin, end - begin);
}

/* Zeros are rare and small. */
static fr_status cpu_copy(fr_device *dev, void *to, const void *from, size_t bytes)
{
    if (!from) return fr__host_copy(dev, to, from, bytes);
    fr__cpu_parallel(dev, bytes, COPY_GRAIN, copy_range, &(copying){to, from});
    return FR_OK;
}

/* One of the two is row-major, with the dims of the other. This is rare, so the primitive is
 * created and destroyed for each call. */
static fr_status cpu_relayout(fr_device *dev, const fr__layout *from, const void *src,
                              const fr__layout *to, void *dst)
{
    if (!from->desc && !to->desc) return fr__host_copy(dev, dst, src, to->bytes);
    static const fr_node parameter = {.name = "(layout)", .op = FR_OP_INPUT};
    const fr__kernel k = {.ctx = dev->ctx, .dev = dev, .node = &parameter};
    fr__md plain;
    const fr__md_view known = fr__md_view_of(from->desc ? from->desc : to->desc);
    FR_TRY(fr__md_row_major(&k, known.n_dims, known.dims, &plain));
    fr_arena arena = {0};
    fr__prim reorder = {0};
    fr_status status = fr__reorder_init(&k, &arena, from->desc ? from->desc : plain,
                                        to->desc ? to->desc : plain, &reorder);
    if (status == FR_OK) {
        void *scratch = fr__alloc(reorder.scratch_bytes);
        status = scratch ? fr__prim_run(&k, &reorder, scratch, FR_TENSORS(src, dst))
                         : fr__no_memory(dev->ctx, reorder.scratch_bytes, "a change of layout");
        fr__free(scratch);
    }
    fr__prim_fini(&reorder);
    fr__arena_fini(&arena);
    return status;
}

/* ---- Sweeps ---- */

void fr__cpu_parallel(fr_device *dev, size_t n, size_t grain, fr_range_fn body, void *arg)
{
    const size_t n_blocks = (n + grain - 1) / grain;
    if (dev->n_threads == 1 || n_blocks < 2) {
        if (n) body(arg, 0, n);
        return;
    }
#pragma omp parallel
    {
        size_t me = (size_t)omp_get_thread_num(), team = (size_t)omp_get_num_threads();
        size_t begin = n_blocks * me / team * grain, end = n_blocks * (me + 1) / team * grain;
        if (end > n) end = n;
        if (begin < end) body(arg, begin, end);
    }
}

int fr__cpu_thread(void) { return omp_get_thread_num(); }

#define SWEEP_GRAIN ((size_t)8192) /* elements; a second thread pays from two of these on */

typedef struct sweep {
    void *out;
    const void *a, *b;
} sweep;

/* As bits a bf16 is negative from 0x8001 to 0xFF80, and positive from 1 to 0x7F80. */
FR_SIMD_RANGE(relu_bf16_range)
{
    uint16_t *y = ((sweep *)arg)->out;
    for (size_t i = begin; i < end; i++) y[i] = (uint16_t)(y[i] - 0x8001) < 0x7F80 ? 0 : y[i];
}

FR_SIMD_RANGE(relu_range)
{
    float *y = ((sweep *)arg)->out;
    for (size_t i = begin; i < end; i++) y[i] = y[i] < 0.0f ? 0.0f : y[i];
}

void fr__cpu_relu(fr_device *dev, fr_dtype type, void *y, size_t n)
{
    fr__cpu_parallel(dev, n, SWEEP_GRAIN, type == FR_BF16 ? relu_bf16_range : relu_range,
                     &(sweep){.out = y});
}

FR_SIMD_RANGE(relu_back_bf16_range)
{
    uint16_t *dz = ((sweep *)arg)->out;
    const uint16_t *dy = ((sweep *)arg)->a;
    const uint16_t *restrict y = ((sweep *)arg)->b;
#pragma omp simd /* dz is dy or does not overlap it */
    for (size_t i = begin; i < end; i++) dz[i] = (uint16_t)(y[i] - 1) < 0x7F80 ? dy[i] : 0;
}

FR_SIMD_RANGE(relu_back_range)
{
    float *dz = ((sweep *)arg)->out;
    const float *dy = ((sweep *)arg)->a;
    const float *restrict y = ((sweep *)arg)->b;
#pragma omp simd /* dz is dy or does not overlap it */
    for (size_t i = begin; i < end; i++) dz[i] = y[i] > 0 ? dy[i] : 0;
}

void fr__cpu_relu_back(fr_device *dev, fr_dtype type, void *dz, const void *dy, const void *y,
                       size_t n)
{
    fr__cpu_parallel(dev, n, SWEEP_GRAIN, type == FR_BF16 ? relu_back_bf16_range : relu_back_range,
                     &(sweep){dz, dy, y});
}

const fr_backend fr__backend_cpu = {
    .name = "cpu",
    .summary = "oneDNN and vectorised sweeps on the cores of this machine",
    .open = cpu_open,
    .close = cpu_close,
    .makers = makers,
    .has_bf16 = true,
    .is_host = true,
    .alloc = cpu_alloc,
    .release = fr__host_release,
    .upload = fr__host_copy,
    .download = fr__host_copy,
    .sync = cpu_sync,
    .copy = cpu_copy,
    .convert = fr__host_convert,
    .add = fr__host_add,
    .blend = fr__host_blend,
    .sweep = fr__host_sweep,
    .orthogonalise = fr__cpu_orthogonalise,
    .squares = fr__host_squares,
    .tree_sum = fr__host_tree_sum,
    .pick = fr__host_pick,
    .parallel = fr__cpu_parallel,
    .fuse = fr__cpu_fuse,
    .relayout = cpu_relayout,
    .library = cpu_library,
    .instructions = fr__cpu_instructions,
    .computes_bf16 = fr__cpu_computes_bf16,
};
