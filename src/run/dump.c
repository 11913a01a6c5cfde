/* dump.c -- writes the dump in two parts, before and after the update, so no copy of the weights is
 * held. */
#include "run/dump.h"

#include "base/alloc.h"
#include "checkpoint/rank0_rpc.h"
#include "io/file.h"
#include "io/number.h"

#include <string.h>

/* The groups of tensors in file order; a group has one tensor per parameter it applies to. */
typedef enum group { BUFFER, PARAM, STATE0, STATE1, GRAD, AFTER, N_GROUPS } group;
_Static_assert(STATE1 - STATE0 + 1 == FR_MAX_OPTIM_STATE, "a group for each state");

static bool has(const fr__dump *d, group k, const fr_param *p)
{
    if (p->tied_to >= 0 || p->is_buffer != (k == BUFFER)) return false;
    return (k != STATE0 && k != STATE1) || (int)(k - STATE0) < d->s->settings.optimizer->n_state;
}

static void name_of(const fr__dump *d, group k, const fr_param *p, char *name, size_t room)
{
    static const char *const prefixes[] = {
        [BUFFER] = "buffer", [PARAM] = "param", [GRAD] = "grad", [AFTER] = "param_after"};
    if (k == STATE0 || k == STATE1)
        snprintf(name, room, "state.%s.%s", d->s->settings.optimizer->state_names[k - STATE0],
                 p->name);
    else
        snprintf(name, room, "%s.%s", prefixes[k], p->name);
}

static fr_status read_values(fr__dump *d, group k, int param)
{
    fr__rpc_kind kind = FR_RPC_GET_PARAM;
    if (k == STATE0 || k == STATE1) kind = FR_RPC_GET_STATE;
    if (k == GRAD) kind = FR_RPC_GET_GRAD;
    int which = kind == FR_RPC_GET_STATE ? (int)(k - STATE0) : 0;
    return fr__rank0_call(d->s, d->e, kind, which, param, d->plain);
}

static fr_status write_groups(fr__dump *d, group first, group last)
{
    const fr_graph *g = d->s->graph;
    for (group k = first; k <= last; k++)
        for (int i = 0; i < fr_graph_n_params(g); i++) {
            const fr_param *p = fr_graph_param(g, i);
            if (!has(d, k, p)) continue;
            FR_TRY(read_values(d, k, i));
            FR_TRY(fr_tensor_writer_data(d->file, d->plain,
                                         (size_t)fr_shape_count(&p->shape) * sizeof(float)));
        }
    return FR_OK;
}

/* A tensor of the mini-batch: the batch and the shape of one sample. */
static fr_status declare_batch(fr__dump *d, const char *name, fr_dtype dtype, const fr_shape *shape)
{
    int64_t dims[FR_MAX_DIMS + 1] = {d->s->settings.batch};
    for (int i = 0; i < shape->n_dims; i++) dims[i + 1] = shape->dim[i];
    return fr_tensor_writer_declare(d->file, name, dtype == FR_F32 ? "F32" : "I32",
                                    shape->n_dims + 1, dims);
}

static bool has_length(const fr__dump *d) { return d->s->length >= 0; }

static fr_status declare_all(fr__dump *d)
{
    const fr_graph *g = d->s->graph;
    const fr_data_info *info = fr_dataset_info(d->s->data);
    const fr_shape scalar = {0};
    FR_TRY(declare_batch(d, "input", info->input_dtype, &info->input));
    FR_TRY(declare_batch(d, "target", info->has_float_targets ? FR_F32 : FR_I32, &info->target));
    if (has_length(d)) FR_TRY(declare_batch(d, "length", FR_I32, &scalar));
    for (group k = 0; k < N_GROUPS; k++) {
        if (k == GRAD) FR_TRY(fr_tensor_writer_declare(d->file, "loss", "F32", 0, NULL));
        for (int i = 0; i < fr_graph_n_params(g); i++) {
            const fr_param *p = fr_graph_param(g, i);
            char name[512];
            if (!has(d, k, p)) continue;
            name_of(d, k, p, name, sizeof name);
            FR_TRY(fr_tensor_writer_declare(d->file, name, "F32", p->shape.n_dims, p->shape.dim));
        }
    }
    return FR_OK;
}

static fr_status meta_real(fr__dump *d, const char *key, double value)
{
    char text[32];
    fr__real_format(value, text);
    return fr_tensor_writer_meta(d->file, key, text);
}

/* Settings of the update, needed to repeat it. */
static fr_status write_meta(fr__dump *d, int64_t step, double lr)
{
    const fr__settings *t = &d->s->settings;
    FR_TRY(fr_tensor_writer_meta(d->file, "forerun", fr_version()));
    FR_TRY(fr_tensor_writer_meta(d->file, "model", fr_graph_name(d->s->graph)));
    FR_TRY(fr_tensor_writer_meta(d->file, "optimizer", t->optimizer->name));
    FR_TRY(meta_real(d, "step", (double)step));
    FR_TRY(meta_real(d, "lr", lr));
    FR_TRY(meta_real(d, "micro", (double)t->micro));
    FR_TRY(meta_real(d, "clip_norm", t->clip_norm));
    FR_TRY(meta_real(d, "weight_decay", t->optim.weight_decay));
    FR_TRY(meta_real(d, "momentum", t->optim.momentum));
    FR_TRY(meta_real(d, "dampening", t->optim.dampening));
    FR_TRY(meta_real(d, "nesterov", t->optim.nesterov));
    FR_TRY(meta_real(d, "beta1", t->optim.beta1));
    FR_TRY(meta_real(d, "beta2", t->optim.beta2));
    FR_TRY(meta_real(d, "eps", t->optim.eps));
    FR_TRY(meta_real(d, "momentum_decay", t->optim.momentum_decay));
    FR_TRY(meta_real(d, "adamw_factor", t->optim.adamw_factor));
    return meta_real(d, "match_rms_adamw", t->optim.match_rms_adamw);
}

static fr_status begin(fr__dump *d, const fr_batch *b, int64_t step, double lr)
{
    const fr_data_info *info = fr_dataset_info(d->s->data);
    size_t n = (size_t)d->s->settings.batch;
    size_t input = n * (size_t)fr_shape_count(&info->input) * fr_dtype_bytes(info->input_dtype);
    FR_TRY(fr_tensor_writer_create(d->s->ctx, d->temp, &d->file));
    FR_TRY(write_meta(d, step, lr));
    FR_TRY(declare_all(d));
    FR_TRY(fr_tensor_writer_data(d->file, b->input, input));
    FR_TRY(fr_tensor_writer_data(d->file, b->target,
                                 n * (size_t)fr_shape_count(&info->target) * sizeof(int32_t)));
    if (has_length(d)) FR_TRY(fr_tensor_writer_data(d->file, b->length, n * sizeof(int32_t)));
    return write_groups(d, BUFFER, STATE1);
}

fr_status fr__dump_begin(fr__setup *s, fr_engine *e, const fr__folder *f, const fr_batch *b,
                         int64_t step, double lr, fr__dump *d)
{
    memset(d, 0, sizeof *d);
    d->s = s, d->e = e, d->folder = f;
    FR_TRY(fr__folder_held(s->ctx, f));
    FR_TRY(fr__path(s->ctx, d->path, "%s/step-%lld.safetensors", f->path, (long long)step));
    FR_TRY(fr__path(s->ctx, d->temp, "%s/.tmp-step-%lld.safetensors", f->path, (long long)step));
    size_t bytes = fr__setup_largest_param(s->graph) * sizeof(float);
    d->plain = fr__alloc(bytes);
    fr_status status = d->plain ? begin(d, b, step, lr) : fr__no_memory(s->ctx, bytes, "dump");
    if (status != FR_OK) fr__dump_abort(d);
    return status;
}

fr_status fr__dump_end(fr__dump *d, double loss)
{
    float value = (float)loss;
    fr_status status = fr_tensor_writer_data(d->file, &value, sizeof value);
    if (status == FR_OK) status = write_groups(d, GRAD, AFTER);
    if (status == FR_OK) status = fr_tensor_writer_finish(d->file);
    if (status == FR_OK) status = fr__folder_held(d->s->ctx, d->folder);
    if (status == FR_OK) status = fr__rename_sync(d->s->ctx, d->temp, d->path);
    if (status == FR_OK) fr_log(d->s->ctx, FR_LOG_INFO, "dumped %s", d->path);
    fr__dump_abort(d);
    return status;
}

void fr__dump_abort(fr__dump *d)
{
    fr_tensor_writer_free(d->file);
    fr__free(d->plain);
    d->file = NULL, d->plain = NULL;
}
