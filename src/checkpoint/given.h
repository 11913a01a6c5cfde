/* given.h -- weights that a run starts from (model.weights): safetensors of this or another
 * program, under the names of the graph or of the model's map (models/weight_map.h).
 *
 * Opening reads headers only, and compares all names, types and shapes with the graph. Values are
 * read one parameter at a time, in pieces: memory is that of the parameter. */
#ifndef FR_CHECKPOINT_GIVEN_H
#define FR_CHECKPOINT_GIVEN_H

#include "checkpoint/folder.h"
#include "config/setup.h"
#include "io/tensor_set.h"
#include "models/weight_map.h"

/* How a parameter is in the files. */
typedef enum fr__given_kind {
    FR_GIVEN_MISSING,
    FR_GIVEN_TAKEN,
    FR_GIVEN_ZERO,  /* the other program has no such parameter */
    FR_GIVEN_TIED,  /* its owner has the values; a tensor of its own is equal to the owner's */
    FR_GIVEN_SHAPE, /* another shape or type */
} fr__given_kind;

/* What a tensor of the files is for. */
typedef enum fr__given_use { FR_USE_NONE, FR_USE_PARAM, FR_USE_IGNORED } fr__given_use;

typedef struct fr__given_param {
    fr__given_kind kind;
    int n_parts, part[FR_MAX_JOINED]; /* tensors of the set */
    bool is_transposed;
} fr__given_param;

typedef struct fr__given {
    fr_ctx *ctx;
    const fr_graph *graph;
    const char *path; /* of the caller, like the graph */
    fr__tensor_set *set;
    const fr__weight_map *map; /* whose names they have; NULL: the graph's */
    const char *prefix;
    fr__given_param *params; /* (parameters of the graph) */
    fr__given_use *uses;     /* (tensors of the set) */
    int n_unmatched;         /* parameters missing or of another shape, tensors without use */
} fr__given;

/* Fails if anything does not match, unless is_strict is false; then it is logged, and values of
 * other parameters are not read. map: of the model, or NULL. */
fr_status fr__given_open(fr_ctx *ctx, const fr_graph *g, const fr__weight_map *map,
                         const char *path, bool is_strict, fr__given *out);
void fr__given_close(fr__given *w); /* a zeroed one is fine */

/* The values of a parameter; `plain` has room for it. *is_there: else it is to keep its own. */
fr_status fr__given_read(fr__given *w, int param, float *plain, bool *is_there);

/* Opens model.weights of the setup, sets the parameters of an engine and logs a line. With a team,
 * call it inside fr__rank0_work. */
fr_status fr__given_load(fr__setup *s, fr_engine *e);

/* The table of all parameters and tensors, to the log; and a failure that names what does not
 * match (given_table.c). */
void fr__given_log(const fr__given *w);
fr_status fr__given_refuse(const fr__given *w);

#endif
