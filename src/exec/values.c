/* values.c -- parameters, gradients, optimizer state and the memory of the weight policy, in and
 * out as plain values, and their starting values. */
#include "exec/stage.h"

#include <string.h>

static bool is_buffer(const fr__exec *x, int param)
{
    return fr_graph_param(x->d.graph, param)->is_buffer;
}

static float *block_of(const fr__exec *x, fr__value_kind kind, int which, int param)
{
    if (is_buffer(x, param)) return kind == FR__VALUE_PARAM ? x->buffers : NULL;
    if (kind == FR__VALUE_GRAD) return x->grads;
    if (kind == FR__VALUE_STATE) return x->state[which];
    return x->store ? fr_store_newest(x->store) : x->newest;
}

static fr_status read_memory(fr__exec *x, int placement, float *plain)
{
    const fr_policy_state m = fr_store_policy_state(x->store);
    return fr__program_read_typed(x->layout, m.type, m.at, placement, plain,
                                  x->d.device->workspace);
}

static fr_status write_memory(fr__exec *x, int placement, const float *plain)
{
    const fr_policy_state m = fr_store_policy_state(x->store);
    if (!m.at) return FR_OK; /* this stage has none */
    FR_TRY(
        fr__program_write_typed(x->layout, m.type, m.at, placement, plain, x->d.device->workspace));
    fr_store_set_policy_state(x->store);
    return FR_OK;
}

/* Images of the newest weights are of older ones now. */
static fr_status has_changed(fr__exec *x)
{
    x->has_image = false;
    return x->store ? fr_store_reset(x->store, fr_store_version(x->store)) : FR_OK;
}

fr_status fr__exec_read(fr__exec *x, fr__value_kind kind, int which, int param, void *plain)
{
    const int placement = fr_program_find_placement(x->layout, param);
    if (kind == FR__VALUE_MEMORY) return read_memory(x, placement, plain);
    return fr_program_read_param(x->layout, block_of(x, kind, which, param), placement, plain);
}

fr_status fr__exec_write(fr__exec *x, fr__value_kind kind, int which, int param, const void *plain)
{
    const int placement = fr_program_find_placement(x->layout, param);
    if (kind == FR__VALUE_MEMORY) return write_memory(x, placement, plain);
    FR_TRY(fr_program_write_param(x->layout, block_of(x, kind, which, param), placement, plain));
    return has_changed(x);
}

bool fr__exec_has_memory(const fr__exec *x) { return fr_store_policy_state(x->store).is_valid; }

/* --- starting values ------------------------------------------------------------------------ */

enum { INIT_GRAIN = 1 << 16 }; /* numbers; a multiple of 4 */

typedef struct filling {
    fr__fill_fn fill;
    void *user;
    int param;
    float *values;
} filling;

static void fill_range(void *arg, size_t begin, size_t end)
{
    const filling *f = arg;
    f->fill(f->user, f->param, begin, end - begin, f->values + begin);
}

/* Training and evaluation read the one weights block, so they must agree on the layout of a
 * parameter in it. `seen`: room for the parameter. */
static fr_status compare_layouts(fr__exec *x, float *block, int placement, const float *values,
                                 float *seen, size_t bytes)
{
    int param = fr_program_placement(x->layout, placement)->param;
    FR_TRY(fr_program_read_param(x->compiled[FR_MODE_EVAL].program, block, placement, seen));
    if (memcmp(values, seen, bytes) == 0) return FR_OK;
    return fr_fail(x->ctx, FR_INTERNAL,
                   "parameter %s: training and evaluation lay it out differently",
                   fr_graph_param(x->d.graph, param)->name);
}

static bool layouts_agree(const fr__exec *x, int placement)
{
    const fr_program *eval = x->compiled[FR_MODE_EVAL].program;
    return !eval || x->layout == eval ||
           (fr_program_is_plain(x->layout, placement) && fr_program_is_plain(eval, placement) &&
            fr_program_placement(x->layout, placement)->offset ==
                fr_program_placement(eval, placement)->offset);
}

/* Where the values are plain, and the host may write there, they are made in place: nothing is held
 * twice. */
static fr_status init_param(fr__exec *x, float *block, int placement, fr__fill_fn fill, void *user)
{
    const fr_placement *at = fr_program_placement(x->layout, placement);
    size_t n = (size_t)fr_shape_count(&fr_graph_param(x->d.graph, at->param)->shape);
    bool in_place = fr_program_is_plain(x->layout, placement) && fr__device_is_host(x->dev);
    bool is_same = layouts_agree(x, placement);
    float *values = in_place ? block + at->offset : fr__alloc(n * sizeof(float));
    float *seen = is_same ? NULL : fr__alloc(n * sizeof(float));
    fr_status status = FR_OK;
    if (!values || !(seen || is_same))
        status = fr__no_memory(x->ctx, n * sizeof(float), "starting values");
    if (status == FR_OK)
        fr_device_parallel(x->dev, n, INIT_GRAIN, fill_range,
                           &(filling){fill, user, at->param, values});
    if (status == FR_OK && !in_place)
        status = fr_program_write_param(x->layout, block, placement, values);
    if (status == FR_OK && !is_same)
        status = compare_layouts(x, block, placement, values, seen, n * sizeof(float));
    fr__free(seen);
    if (!in_place) fr__free(values);
    return status;
}

fr_status fr__exec_init(fr__exec *x, fr__fill_fn fill, void *user)
{
    for (int i = 0; i < fr_program_n_placements(x->layout); i++) {
        const fr_placement *at = fr_program_placement(x->layout, i);
        if (!is_buffer(x, at->param) && at->offset >= x->n_weights)
            continue; /* tied: no values of its own */
        FR_TRY(init_param(x, block_of(x, FR__VALUE_PARAM, 0, at->param), i, fill, user));
    }
    return has_changed(x);
}
