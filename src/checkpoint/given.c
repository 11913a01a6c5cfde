/* given.c -- finds the tensor of each parameter, and reads its values.
 *
 * The names of a file are those under which most parameters are found: of the model's map, with one
 * of its prefixes, or of the graph. */
#include "checkpoint/given.h"

#include "checkpoint/rank0_rpc.h"
#include "io/file.h"
#include "io/number.h"
#include "io/tensor_type.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PIECE = 1 << 20 }; /* bytes of a file that are in memory at a time */

/* --- names and shapes ------------------------------------------------------------------------- */

static int n_params(const fr__given *w) { return fr_graph_n_params(w->graph); }

/* How many parameters have all their tensors under these names. */
static int count_found(const fr__given *w, const fr__weight_map *map, const char *prefix)
{
    int n = 0;
    fr__weight_names names;
    for (int i = 0; i < n_params(w); i++) {
        if (!fr__weight_names_of(map, prefix, fr_graph_param(w->graph, i)->name, &names)) continue;
        int k = 0;
        while (k < names.n && fr__tensor_set_find(w->set, names.name[k]) >= 0) k++;
        n += names.n > 0 && k == names.n;
    }
    return n;
}

static void choose_names(fr__given *w, const fr__weight_map *map)
{
    int most = -1;
    for (const char *const *p = map ? map->prefixes : NULL; p && *p; p++) {
        int n = count_found(w, map, *p);
        if (n > most) most = n, w->map = map, w->prefix = *p;
    }
    if (count_found(w, NULL, "") > most) w->map = NULL, w->prefix = "";
}

/* Rows and columns of a part: rows are its first dimension. */
static void part_size(const fr__given *w, int param, int64_t *rows, int64_t *columns)
{
    const fr_shape *s = &fr_graph_param(w->graph, param)->shape;
    int n = w->params[param].n_parts > 0 ? w->params[param].n_parts : 1;
    *rows = (s->n_dims ? s->dim[0] : 1) / n;
    *columns = *rows ? fr_shape_count(s) / n / *rows : 0;
}

static bool has_shape(const fr__given *w, int param, const fr_tensor_info *t)
{
    const fr_shape *s = &fr_graph_param(w->graph, param)->shape;
    const fr__given_param *p = &w->params[param];
    fr_shape wanted = *s;
    int64_t columns;
    if (t->n_dims != s->n_dims || (p->is_transposed && s->n_dims != 2)) return false;
    if (s->n_dims) {
        if (s->dim[0] % p->n_parts != 0) return false;
        part_size(w, param, &wanted.dim[0], &columns);
    }
    if (p->is_transposed) wanted.dim[1] = wanted.dim[0], wanted.dim[0] = s->dim[1];
    for (int i = 0; i < s->n_dims; i++)
        if (t->dim[i] != wanted.dim[i]) return false;
    return true;
}

static bool is_real(const fr_tensor_info *t) { return fr__real_bytes(t->dtype) > 0; }

static void match(fr__given *w, int param)
{
    fr__weight_names names;
    fr__given_param *p = &w->params[param];
    const fr_param *of = fr_graph_param(w->graph, param);
    bool is_known = fr__weight_names_of(w->map, w->prefix, of->name, &names);
    p->is_transposed = names.is_transposed;
    for (int k = 0; k < names.n; k++) {
        int at = fr__tensor_set_find(w->set, names.name[k]);
        if (at >= 0) w->uses[at] = FR_USE_PARAM, p->part[p->n_parts++] = at;
    }
    p->kind = p->n_parts == names.n ? FR_GIVEN_TAKEN : FR_GIVEN_MISSING;
    if (names.n == 0) p->kind = is_known && !of->is_buffer ? FR_GIVEN_ZERO : FR_GIVEN_MISSING;
    for (int k = 0; k < p->n_parts && p->kind == FR_GIVEN_TAKEN; k++) {
        const fr_tensor_info *t = fr__tensor_set_at(w->set, p->part[k])->info;
        if (!is_real(t) || !has_shape(w, param, t)) p->kind = FR_GIVEN_SHAPE;
    }
    if (of->tied_to >= 0 && p->kind != FR_GIVEN_SHAPE) p->kind = FR_GIVEN_TIED;
}

static void match_all(fr__given *w)
{
    for (int i = 0; i < n_params(w); i++) {
        match(w, i);
        fr__given_kind kind = w->params[i].kind;
        w->n_unmatched += kind == FR_GIVEN_MISSING || kind == FR_GIVEN_SHAPE;
    }
    for (int i = 0; i < fr__tensor_set_count(w->set); i++) {
        const char *name = fr__tensor_set_at(w->set, i)->info->name;
        if (w->uses[i] == FR_USE_NONE && fr__weight_is_ignored(w->map, w->prefix, name))
            w->uses[i] = FR_USE_IGNORED;
        w->n_unmatched += w->uses[i] == FR_USE_NONE;
    }
}

/* --- values ----------------------------------------------------------------------------------- */

/* Values first .. first + n - 1 of a matrix with `width` columns into its transpose, which has
 * `height`. Whole rows go column by column, so that a run of memory is written at a time. */
static void transpose(const float *from, int64_t first, int64_t n, int64_t width, int64_t height,
                      float *to)
{
    int64_t row = first / width, column = first % width, rows = n / width;
    if (column == 0 && rows * width == n) {
        for (int64_t c = 0; c < width; c++)
            for (int64_t r = 0; r < rows; r++) to[c * height + row + r] = from[r * width + c];
        return;
    }
    for (int64_t i = 0; i < n; i++) { /* a row longer than a piece */
        to[column * height + row] = from[i];
        if (++column == width) column = 0, row++;
    }
}

/* One tensor into the rows of its part. raw, values: room for a piece. */
static fr_status read_part(fr__given *w, int param, int k, void *raw, float *values, float *plain)
{
    const fr__given_param *p = &w->params[param];
    const fr_tensor_info *t = fr__tensor_set_at(w->set, p->part[k])->info;
    int64_t rows, columns, item = (int64_t)fr__real_bytes(t->dtype);
    part_size(w, param, &rows, &columns);
    float *to = plain + k * rows * columns;
    int64_t most = PIECE / (int64_t)sizeof(double), left;
    if (p->is_transposed && rows < most) most = most / rows * rows;
    for (int64_t first = 0, n; (left = rows * columns - first) > 0; first += n) {
        n = left < most ? left : most;
        FR_TRY(fr__tensor_set_read(w->set, p->part[k], (uint64_t)(first * item), raw,
                                   (size_t)(n * item)));
        fr__real_read(t->dtype, raw, (size_t)n, p->is_transposed ? values : to + first);
        if (p->is_transposed) transpose(values, first, n, rows, columns, to);
    }
    return FR_OK;
}

static fr_status read_parts(fr__given *w, int param, float *plain)
{
    const fr_param *of = fr_graph_param(w->graph, param);
    size_t n = (size_t)fr_shape_count(&of->shape);
    float *values = fr__alloc_raw(2 * PIECE);
    if (!values) return fr__no_memory(w->ctx, 2 * PIECE, w->path);
    fr_status status = FR_OK;
    for (int k = 0; k < w->params[param].n_parts && status == FR_OK; k++)
        status = read_part(w, param, k, values + PIECE / sizeof *values, values, plain);
    fr__free(values);
    if (status != FR_OK || fr__are_finite(plain, n)) return status;
    const fr__set_tensor *t = fr__tensor_set_at(w->set, w->params[param].part[0]);
    return fr_fail(w->ctx, FR_INVALID, "%s: tensor \"%s\" has values that are not finite as floats",
                   t->path, t->info->name);
}

fr_status fr__given_read(fr__given *w, int param, float *plain, bool *is_there)
{
    const fr__given_param *p = &w->params[param];
    *is_there = p->kind == FR_GIVEN_TAKEN || p->kind == FR_GIVEN_ZERO;
    if (p->kind == FR_GIVEN_ZERO)
        memset(plain, 0, (size_t)fr_shape_count(&fr_graph_param(w->graph, param)->shape) * 4);
    return p->kind == FR_GIVEN_TAKEN ? read_parts(w, param, plain) : FR_OK;
}

/* A tied parameter that has a tensor of its own: the same values as its owner's. */
static fr_status check_tie(fr__given *w, int param, char *one, char *two)
{
    const fr_param *of = fr_graph_param(w->graph, param);
    const fr__given_param *p = &w->params[param], *owner = &w->params[of->tied_to];
    if (p->n_parts == 0 || owner->kind != FR_GIVEN_TAKEN) return FR_OK;
    const fr__set_tensor *a = fr__tensor_set_at(w->set, p->part[0]);
    const fr__set_tensor *b = fr__tensor_set_at(w->set, owner->part[0]);
    bool is_same = strcmp(a->info->dtype, b->info->dtype) == 0 && a->info->bytes == b->info->bytes;
    for (uint64_t at = 0, n; is_same && at < a->info->bytes; at += n) {
        n = a->info->bytes - at < PIECE ? a->info->bytes - at : PIECE;
        FR_TRY(fr__tensor_set_read(w->set, p->part[0], at, one, n));
        FR_TRY(fr__tensor_set_read(w->set, owner->part[0], at, two, n));
        is_same = memcmp(one, two, n) == 0;
    }
    if (is_same) return FR_OK;
    return fr_fail(w->ctx, FR_INVALID,
                   "%s: tensors \"%s\" and \"%s\" differ, but the model has one parameter for "
                   "both (%s); model.tied: false gives it two",
                   a->path, a->info->name, b->info->name, of->name);
}

static fr_status check_ties(fr__given *w)
{
    char *block = fr__alloc_raw(2 * PIECE);
    if (!block) return fr__no_memory(w->ctx, 2 * PIECE, w->path);
    fr_status status = FR_OK;
    for (int i = 0; i < n_params(w) && status == FR_OK; i++)
        if (w->params[i].kind == FR_GIVEN_TIED) status = check_tie(w, i, block, block + PIECE);
    fr__free(block);
    return status;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* config.json beside the weights. */
static fr_status check_config(fr__given *w)
{
    char path[FR_PATH];
    if (!w->map || !w->map->check || !fr__dir_exists(w->path)) return FR_OK;
    FR_TRY(fr__path(w->ctx, path, "%s/config.json", w->path));
    return fr__file_exists(path) ? w->map->check(w->ctx, w->graph, path) : FR_OK;
}

static fr_status open_given(fr__given *w, const fr__weight_map *map, bool is_strict)
{
    FR_TRY(fr__tensor_set_open(w->ctx, w->path, &w->set));
    w->params = FR_NEW_ARRAY(fr__given_param, n_params(w));
    w->uses = FR_NEW_ARRAY(fr__given_use, fr__tensor_set_count(w->set) + 1);
    if (!w->params || !w->uses)
        return fr__no_memory(w->ctx, (size_t)n_params(w) * sizeof *w->params, w->path);
    choose_names(w, map);
    match_all(w);
    if (w->n_unmatched > 0) fr__given_log(w);
    if (w->n_unmatched > 0 && is_strict) return fr__given_refuse(w);
    FR_TRY(check_config(w));
    return check_ties(w);
}

fr_status fr__given_open(fr_ctx *ctx, const fr_graph *g, const fr__weight_map *map,
                         const char *path, bool is_strict, fr__given *out)
{
    *out = (fr__given){.ctx = ctx, .graph = g, .path = path, .prefix = ""};
    fr_status status = open_given(out, map, is_strict);
    if (status != FR_OK) fr__given_close(out);
    return status;
}

void fr__given_close(fr__given *w)
{
    fr__tensor_set_close(w->set);
    fr__free(w->params);
    fr__free(w->uses);
    *w = (fr__given){0};
}

/* --- an engine -------------------------------------------------------------------------------- */

static fr_status load(fr__setup *s, fr_engine *e, fr__given *w)
{
    size_t bytes = fr__setup_largest_param(s->graph) * sizeof(float);
    float *plain = fr__alloc(bytes);
    if (!plain) return fr__no_memory(s->ctx, bytes, w->path);
    fr_status status = FR_OK;
    int n_taken = 0;
    for (int i = 0; i < n_params(w) && status == FR_OK; i++) {
        bool is_there;
        if (fr_graph_param(w->graph, i)->tied_to >= 0) continue;
        status = fr__given_read(w, i, plain, &is_there);
        if (status == FR_OK && is_there)
            status = fr__rank0_call(s, e, FR_RPC_SET_PARAM, 0, i, plain), n_taken++;
    }
    fr__free(plain);
    if (status == FR_OK)
        fr_log(s->ctx, FR_LOG_INFO, "weights from %s: %d parameters under names of %s%s", w->path,
               n_taken, w->map ? w->map->name : "Forerun",
               w->n_unmatched ? "; the others start from the seed" : "");
    return status;
}

fr_status fr__given_load(fr__setup *s, fr_engine *e)
{
    fr__given w;
    FR_TRY(fr__given_open(s->ctx, s->graph, fr__weight_map_of(fr_graph_name(s->graph)), s->weights,
                          s->is_weights_strict, &w));
    fr_status status = load(s, e, &w);
    fr__given_close(&w);
    return status;
}
