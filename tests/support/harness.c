/* harness.c -- blocks with guards, unkind calls, plain results. */
#include "support/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "base/bf16.h"
#include "base/philox.h"
#include "support/test.h"

#define GUARD 256 /* bytes before and after each block */
#define GUARD_BYTE 0xA5
#define TRASH_BYTE 0xFF /* floats: NaN; integers: -1 */

static void *data_of(const harness_block *b) { return b->base + GUARD; }

static void must(harness *h, fr_status status)
{
    if (status != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
}

static void *host_array(size_t n)
{
    void *p = calloc(n ? n : 1, 4);
    assert_non_null(p);
    return p;
}

/* Fill bytes [at, at + bytes) of device memory. */
static void fill_device(harness *h, void *at, size_t bytes, int byte)
{
    char *host = malloc(bytes ? bytes : 1);
    assert_non_null(host);
    memset(host, byte, bytes);
    must(h, fr_device_upload(h->dev, at, host, bytes));
    free(host);
}

static void trash(harness *h, const harness_block *b)
{
    fill_device(h, data_of(b), b->bytes, h->options.zeroed ? 0 : TRASH_BYTE);
}

static void make_block(harness *h, harness_block *b, size_t bytes)
{
    void *base;
    must(h, fr_device_alloc(h->dev, bytes + 2 * GUARD, "a block", &base));
    *b = (harness_block){base, bytes};
    fill_device(h, b->base, GUARD, GUARD_BYTE);
    fill_device(h, b->base + GUARD + bytes, GUARD, GUARD_BYTE);
}

static void free_block(harness *h, harness_block *b)
{
    if (b->base) fr_device_release(h->dev, b->base, b->bytes + 2 * GUARD);
}

static void check_guards(harness *h, const harness_block *b, const char *what)
{
    unsigned char host[GUARD];
    for (int side = 0; side < 2; side++) {
        must(h, fr_device_download(h->dev, host, b->base + (side ? GUARD + b->bytes : 0), GUARD));
        int i = 0;
        while (i < GUARD && host[i] == GUARD_BYTE) i++;
        if (i < GUARD)
            fr_fail(h->ctx, FR_INTERNAL, "%s: written %d bytes %s it", what, side ? i : GUARD - i,
                    side ? "behind" : "before");
    }
}

/* A host array as it is in a block: numbers of this type. */
static void *packed(const harness_block *b, fr_dtype type, const void *host)
{
    uint16_t *image = malloc(b->bytes ? b->bytes : 1);
    assert_non_null(image);
    if (type != FR_BF16) return memcpy(image, host, b->bytes);
    for (size_t i = 0; i < b->bytes / 2; i++) image[i] = fr__bf16_of(((const float *)host)[i]);
    return image;
}

static void put(harness *h, const harness_block *b, fr_dtype type, const void *host)
{
    void *image = packed(b, type, host);
    must(h, fr_device_upload(h->dev, data_of(b), image, b->bytes));
    free(image);
}

static void get(harness *h, const harness_block *b, fr_dtype type, float *host)
{
    const uint16_t *image = (const uint16_t *)(void *)host; /* in its first half */
    must(h, fr_device_download(h->dev, host, data_of(b), b->bytes));
    for (size_t i = type == FR_BF16 ? b->bytes / 2 : 0; i-- > 0;) {
        const float value = fr__bf16_value(image[i]);
        memcpy(&host[i], &value, sizeof value);
    }
}

/* The block still equals the host array. */
static void check_unchanged(harness *h, const harness_block *b, fr_dtype type, const void *host,
                            const char *what)
{
    void *now = malloc(b->bytes ? b->bytes : 1), *image = packed(b, type, host);
    assert_non_null(now);
    must(h, fr_device_download(h->dev, now, data_of(b), b->bytes));
    if (memcmp(now, image, b->bytes) != 0) fr_fail(h->ctx, FR_INTERNAL, "%s was changed", what);
    free(now);
    free(image);
}

fr_status harness_open(harness *h, const net *n, const harness_options *options)
{
    return harness_open_graph(h, n->graph, &n->stage, options);
}

static void open_ports(harness *h)
{
    h->n_in = fr_program_n_inputs(h->program);
    h->n_out = fr_program_n_outputs(h->program);
    assert_true(h->n_in <= HARNESS_MAX_PORTS && h->n_out <= HARNESS_MAX_PORTS);
    for (int i = 0; i < h->n_in; i++) {
        const fr_port *port = fr_program_input(h->program, i);
        h->n_x[i] = port->bytes / fr_dtype_bytes(port->dtype);
        h->x[i] = host_array(h->n_x[i]);
        make_block(h, &h->in[i], port->bytes);
        h->in_at[i] = data_of(&h->in[i]);
        if (!port->has_grad) continue;
        h->dx[i] = host_array(h->n_x[i]);
        make_block(h, &h->din[i], port->bytes);
        h->din_at[i] = data_of(&h->din[i]);
    }
    for (int i = 0; i < h->n_out; i++) {
        const fr_port *port = fr_program_output(h->program, i);
        h->n_y[i] = port->bytes / fr_dtype_bytes(port->dtype);
        h->y[i] = host_array(h->n_y[i]);
        make_block(h, &h->out[i], port->bytes);
        h->out_at[i] = data_of(&h->out[i]);
        make_block(h, &h->again[i], port->recomputed ? port->bytes : 0);
        if (!port->has_grad) continue;
        h->dy[i] = host_array(h->n_y[i]);
        make_block(h, &h->dout[i], port->bytes);
        h->dout_at[i] = data_of(&h->dout[i]);
    }
}

static const char *param_name(const harness *h, int placement)
{
    return fr_graph_param(h->graph, fr_program_placement(h->program, placement)->param)->name;
}

/* grad_ready: take the reported panel. */
static void take_report(void *user, size_t offset, size_t count, const float *grad)
{
    harness *h = user;
    must(h, fr_device_download(h->dev, h->reported + offset, grad, count * sizeof(float)));
    for (size_t i = 0; i < count; i++) h->n_reports[offset + i]++;
}

static void forget_reports(harness *h)
{
    size_t n = fr_program_sizes_of(h->program)->n_grads;
    memset(h->n_reports, 0, n * sizeof *h->n_reports);
}

/* The reported values replace the gradients. */
static void use_reports(harness *h)
{
    for (int i = 0; i < h->n_params; i++) {
        const fr_placement *p = fr_program_placement(h->program, i);
        if (!h->dw[i]) continue;
        for (size_t j = 0; j < p->count; j++)
            if (h->n_reports[p->offset + j] != 1)
                fr_fail(h->ctx, FR_INTERNAL, "gradient of %s: number %zu reported %d times",
                        param_name(h, i), j, h->n_reports[p->offset + j]);
        must(h, fr_device_upload(h->dev, h->pass.grads + p->offset, h->reported + p->offset,
                                 p->count * sizeof(float)));
    }
}

static void open_params(harness *h)
{
    h->n_params = fr_program_n_placements(h->program);
    const fr_program_sizes *sizes = fr_program_sizes_of(h->program);
    assert_true(h->n_params <= HARNESS_MAX_PARAMS);
    for (int i = 0; i < h->n_params; i++) {
        const fr_param *p = fr_graph_param(h->graph, fr_program_placement(h->program, i)->param);
        h->n_w[i] = (size_t)fr_shape_count(&p->shape);
        h->w[i] = host_array(h->n_w[i]);
        float **more = p->is_buffer ? &h->after[i] : &h->dw[i];
        *more = host_array(h->n_w[i]);
        bool is_tied = fr_program_placement(h->program, i)->offset >= sizes->n_weights;
        if (!p->is_buffer && !is_tied) h->placed[i] = h->w[i];
    }
    make_block(h, &h->newest, sizes->n_weights * sizeof(float));
    make_block(h, &h->weights, sizes->n_weights * fr_dtype_bytes(fr_graph_precision(h->graph)));
    make_block(h, &h->grads, sizes->n_grads * sizeof(float));
    make_block(h, &h->buffers, sizes->n_buffers * sizeof(float));
    make_block(h, &h->slot, sizes->slot_bytes);
    make_block(h, &h->area, sizes->area_bytes);
    make_block(h, &h->again_buffers, sizes->n_buffers * sizeof(float));
    make_block(h, &h->workspace, sizes->workspace_bytes);
    h->reported = host_array(sizes->n_grads);
    h->n_reports = host_array(sizes->n_grads);
}

fr_status harness_open_graph(harness *h, const fr_graph *g, const fr_stage *stage,
                             const harness_options *options)
{
    *h = (harness){.options = *options, .graph = g, .ctx = fr_ctx_create()};
    assert_non_null(h->ctx);
    fr_device_desc device = {.n_threads = options->n_threads ? options->n_threads : 1};
    must(h, fr_device_open(h->ctx, options->backend, &device, &h->dev));
    fr_program_desc desc = {.graph = g,
                            .stage = stage,
                            .batch = options->batch,
                            .training = !options->eval,
                            .split_backward = options->split,
                            .recompute = options->recompute,
                            .extra_output = options->extra_output};
    FR_TRY(fr_program_create(h->ctx, h->dev, &desc, &h->program));
    open_ports(h);
    open_params(h);
    h->pass = (fr_pass){.weights = data_of(&h->weights),
                        .grads = data_of(&h->grads),
                        .buffers = data_of(&h->buffers),
                        .slot = data_of(&h->slot),
                        .area = data_of(&h->area),
                        .workspace = data_of(&h->workspace),
                        .inputs = h->in_at,
                        .outputs = h->out_at,
                        .output_grads = h->dout_at,
                        .input_grads = h->din_at,
                        .seed = 1,
                        .loss_scale = 1,
                        .grad_ready = options->transient ? take_report : NULL,
                        .transient_grads = options->transient,
                        .user = h};
    return FR_OK;
}

void harness_close(harness *h)
{
    for (int i = 0; i < HARNESS_MAX_PORTS; i++) {
        free(h->x[i]), free(h->dx[i]), free(h->y[i]), free(h->dy[i]);
        free_block(h, &h->in[i]), free_block(h, &h->din[i]);
        free_block(h, &h->out[i]), free_block(h, &h->dout[i]), free_block(h, &h->again[i]);
    }
    for (int i = 0; i < HARNESS_MAX_PARAMS; i++) free(h->w[i]), free(h->dw[i]), free(h->after[i]);
    free(h->reported), free(h->n_reports);
    free_block(h, &h->newest), free_block(h, &h->weights), free_block(h, &h->grads),
        free_block(h, &h->buffers);
    free_block(h, &h->slot), free_block(h, &h->workspace);
    free_block(h, &h->area), free_block(h, &h->again_buffers);
    fr_program_free(h->program);
    if (h->dev && fr_device_bytes(h->dev)) fail_msg("the device still holds memory");
    fr_device_close(h->dev);
    fr_ctx_free(h->ctx);
    *h = (harness){0};
}

void harness_random(uint64_t seed, uint32_t stream, float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t words[4];
        fr__random4(seed, FR_STREAM_SYNTHETIC, stream, i, 0, words);
        values[i] = 2 * fr__unit_float(words[0]) - 1;
    }
}

/* Streams by name, so that neither the order of ports nor that of parameters matters. */
static uint32_t stream_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash & 0xFFFFFF;
}

/* Values that keep numbers near 1: matrices by their fan-in, variances and gains around 1. */
static void fill_param(harness *h, int i, uint64_t seed)
{
    const fr_param *p = fr_graph_param(h->graph, fr_program_placement(h->program, i)->param);
    const fr_node *node = fr_graph_node(h->graph, p->node);
    bool is_gain = p->init.kind == FR_INIT_ONES;
    float rows = (float)p->shape.dim[0], fan_in = (float)h->n_w[i] / rows;
    float size = p->shape.n_dims < 2 || node->op == FR_OP_EMBEDDING ? 0.5f : sqrtf(3 / fan_in);
    harness_random(seed, stream_of(p->name), h->w[i], h->n_w[i]);
    for (size_t j = 0; j < h->n_w[i]; j++)
        h->w[i][j] = is_gain ? 1 + 0.5f * h->w[i][j] : size * h->w[i][j];
}

void harness_fill(harness *h, const net *n, uint64_t seed)
{
    for (int i = 0; i < h->n_in; i++) {
        int index = fr_program_input(h->program, i)->node;
        const fr_node *node = fr_graph_node(h->graph, index);
        float *values = h->x[i];
        int32_t *ids = h->x[i];
        harness_random(seed, stream_of(node->name), values, h->n_x[i]);
        for (size_t j = 0; j < h->n_x[i]; j++) {
            if (node->dtype != FR_I32) {
                values[j] = n && n->is_share[index] ? (values[j] + 1) / 2 : values[j] * 2;
                continue;
            }
            int low = n ? n->low[index] : 0, span = n ? n->high[index] - low + 1 : 1;
            int32_t id = low + (int32_t)((values[j] + 1) / 2 * (float)span);
            ids[j] = id < low + span ? id : low + span - 1;
        }
    }
    for (int i = 0; i < h->n_out; i++) {
        const fr_node *node = fr_graph_node(h->graph, fr_program_output(h->program, i)->node);
        if (h->dy[i]) harness_random(seed + 1, stream_of(node->name), h->dy[i], h->n_y[i]);
    }
    for (int i = 0; i < h->n_params; i++) fill_param(h, i, seed);
}

void harness_round_values(float *values, size_t n)
{
    for (size_t i = 0; values && i < n; i++) values[i] = fr__bf16_value(fr__bf16_of(values[i]));
}

void harness_round(harness *h)
{
    for (int i = 0; i < h->n_in; i++)
        if (fr_program_input(h->program, i)->dtype != FR_I32)
            harness_round_values(h->x[i], h->n_x[i]);
    for (int i = 0; i < h->n_out; i++) harness_round_values(h->dy[i], h->n_y[i]);
    for (int i = 0; i < h->n_params; i++)
        if (!h->after[i]) harness_round_values(h->w[i], h->n_w[i]);
}

/* Zeros everywhere except in the parameters. */
static void upload_block(harness *h, harness_block *b, bool buffers, float *const *values)
{
    fill_device(h, data_of(b), b->bytes, 0);
    for (int i = 0; i < h->n_params; i++)
        if (values[i] && (h->after[i] != NULL) == buffers)
            must(h, fr_program_write_param(h->program, data_of(b), i, values[i]));
}

static void upload_weights(harness *h)
{
    upload_block(h, &h->newest, false, h->placed);
    must(h, fr__device_convert(h->dev, fr_graph_precision(h->graph), data_of(&h->weights), FR_F32,
                               data_of(&h->newest), h->newest.bytes / sizeof(float)));
}

/* NaN in the gradients themselves; padding and gaps are zero, and must stay so. */
static void upload_grads(harness *h)
{
    for (int i = 0; i < h->n_params && !h->pass.accumulate; i++)
        if (h->dw[i])
            memset(h->dw[i], h->options.zeroed ? 0 : TRASH_BYTE, h->n_w[i] * sizeof(float));
    upload_block(h, &h->grads, false, h->dw);
}

/* If a later stage also reads the input, the gradient is added to: here that of the later stage is
 * zero. */
static void start_input_grad(harness *h, int i)
{
    if (!h->dx[i]) return;
    if (fr_program_input(h->program, i)->has_seed)
        fill_device(h, data_of(&h->din[i]), h->din[i].bytes, 0);
    else
        trash(h, &h->din[i]);
}

static void upload(harness *h)
{
    upload_weights(h);
    upload_block(h, &h->buffers, true, h->w);
    upload_grads(h);
    for (int i = 0; i < h->n_in; i++) {
        put(h, &h->in[i], fr_program_input(h->program, i)->dtype, h->x[i]);
        start_input_grad(h, i);
    }
    for (int i = 0; i < h->n_out; i++) {
        trash(h, &h->out[i]);
        if (h->dy[i]) put(h, &h->dout[i], fr_program_output(h->program, i)->dtype, h->dy[i]);
    }
    trash(h, &h->slot);
    trash(h, &h->area);
    trash(h, &h->workspace);
}

/* Overwrite what may be lost between passes: the workspace, and ports that need not be kept. */
static void lose_what_may_be_lost(harness *h)
{
    trash(h, &h->workspace);
    for (int i = 0; i < h->n_in; i++)
        if (!fr_program_input(h->program, i)->kept) trash(h, &h->in[i]);
    for (int i = 0; i < h->n_out; i++)
        if (!fr_program_output(h->program, i)->kept) trash(h, &h->out[i]);
}

static void download_outputs(harness *h)
{
    must(h, fr_device_sync(h->dev));
    for (int i = 0; i < h->n_out; i++)
        get(h, &h->out[i], fr_program_output(h->program, i)->dtype, h->y[i]);
    for (int i = 0; i < h->n_params; i++)
        if (h->after[i])
            must(h, fr_program_read_param(h->program, data_of(&h->buffers), i, h->after[i]));
}

static void upload_grads_again(harness *h) { upload_block(h, &h->grads, false, h->dw); }

/* Whether a block is zero except for its parameters. Checks by writing them again. */
static bool holds_only(harness *h, harness_block *b, void (*write)(harness *h))
{
    char *now = host_array(b->bytes / 4 + 1), *clean = host_array(b->bytes / 4 + 1);
    must(h, fr_device_download(h->dev, now, data_of(b), b->bytes));
    write(h);
    must(h, fr_device_download(h->dev, clean, data_of(b), b->bytes));
    bool same = memcmp(now, clean, b->bytes) == 0;
    free(now);
    free(clean);
    return same;
}

/* Every gradient written, and nothing else. */
static void download_grads(harness *h)
{
    for (int i = 0; i < h->n_params; i++) {
        if (!h->dw[i]) continue;
        must(h, fr_program_read_param(h->program, data_of(&h->grads), i, h->dw[i]));
        for (size_t j = 0; j < h->n_w[i]; j++)
            if (isnan(h->dw[i][j]))
                fr_fail(h->ctx, FR_INTERNAL, "gradient of %s: number %zu of %zu is NaN",
                        param_name(h, i), j, h->n_w[i]);
    }
    if (!holds_only(h, &h->grads, upload_grads_again))
        fr_fail(h->ctx, FR_INTERNAL, "grads: written between parameters or in their padding");
}

static void check_memory(harness *h)
{
    check_guards(h, &h->weights, "weights"), check_guards(h, &h->grads, "grads");
    check_guards(h, &h->buffers, "buffers"), check_guards(h, &h->slot, "slot");
    check_guards(h, &h->workspace, "workspace"), check_guards(h, &h->area, "area");
    check_guards(h, &h->again_buffers, "recomputed buffers");
    for (int i = 0; i < h->n_in; i++) {
        check_guards(h, &h->in[i], "an input");
        if (h->dx[i]) check_guards(h, &h->din[i], "an input gradient");
    }
    for (int i = 0; i < h->n_out; i++) {
        check_guards(h, &h->out[i], "an output");
        check_guards(h, &h->again[i], "a recomputed output");
        if (h->dy[i]) check_guards(h, &h->dout[i], "an output gradient");
    }
    if (!holds_only(h, &h->weights, upload_weights))
        fr_fail(h->ctx, FR_INTERNAL, "weights were changed");
}

fr_status harness_forward(harness *h)
{
    upload(h);
    FR_TRY(fr_program_forward(h->program, &h->pass));
    download_outputs(h);
    for (int i = 0; i < h->n_in; i++)
        check_unchanged(h, &h->in[i], fr_program_input(h->program, i)->dtype, h->x[i], "an input");
    check_memory(h);
    return fr_ctx_status(h->ctx);
}

/* The outputs of the forward, and its running statistics, are not written again. */
static fr_status recompute(harness *h)
{
    trash(h, &h->area);
    trash(h, &h->again_buffers);
    for (int i = 0; i < h->n_out; i++) {
        if (!fr_program_output(h->program, i)->recomputed) continue;
        trash(h, &h->again[i]);
        h->out_at[i] = data_of(&h->again[i]);
    }
    fr_pass again = h->pass;
    again.buffers = data_of(&h->again_buffers);
    FR_TRY(fr_program_recompute(h->program, &again));
    trash(h, &h->workspace);
    return FR_OK;
}

static fr_status backward(harness *h)
{
    if (!h->options.split) return fr_program_backward(h->program, &h->pass, FR_GRAD_BOTH);
    FR_TRY(fr_program_backward(h->program, &h->pass, FR_GRAD_INPUT));
    for (int i = 0; i < h->n_in; i++)
        if (h->dx[i]) get(h, &h->din[i], fr_program_input(h->program, i)->dtype, h->dx[i]);
    for (int i = 0; i < h->n_in; i++)
        if (h->dx[i]) trash(h, &h->din[i]);
    for (int i = 0; i < h->n_out; i++)
        if (h->dy[i]) trash(h, &h->dout[i]);
    trash(h, &h->workspace);
    return fr_program_backward(h->program, &h->pass, FR_GRAD_WEIGHT);
}

fr_status harness_run(harness *h)
{
    FR_TRY(harness_forward(h));
    if (h->options.eval) return FR_OK;
    upload(h); /* the check of the forward has put weights and statistics back */
    FR_TRY(fr_program_forward(h->program, &h->pass));
    download_outputs(h);
    lose_what_may_be_lost(h);
    forget_reports(h);
    if (h->options.recompute) FR_TRY(recompute(h));
    FR_TRY(backward(h));
    must(h, fr_device_sync(h->dev));
    for (int i = 0; i < h->n_out; i++) h->out_at[i] = data_of(&h->out[i]);
    if (h->options.transient) use_reports(h);
    for (int i = 0; i < h->n_in; i++) {
        const fr_port *port = fr_program_input(h->program, i);
        if (port->kept) check_unchanged(h, &h->in[i], port->dtype, h->x[i], "an input");
        if (h->dx[i] && !h->options.split) get(h, &h->din[i], port->dtype, h->dx[i]);
    }
    for (int i = 0; i < h->n_out && !h->options.split; i++)
        if (h->dy[i])
            check_unchanged(h, &h->dout[i], fr_program_output(h->program, i)->dtype, h->dy[i],
                            "a given gradient");
    download_grads(h);
    check_memory(h);
    return fr_ctx_status(h->ctx);
}
