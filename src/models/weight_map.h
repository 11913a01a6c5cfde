/* weight_map.h -- the names under which other programs store the weights of a model.
 *
 * A map is a table of rules, one or more patterns of names each: '#' stands for a number, '*' at
 * the end of a pattern for the rest of the name; both stand for the same text on either side.
 *
 *     {"h.#.attn.qkv.weight", {"h.#.attn.c_attn.weight"}, .is_transposed = true}
 *
 * The first rule whose pattern fits a name counts. */
#ifndef FR_MODELS_WEIGHT_MAP_H
#define FR_MODELS_WEIGHT_MAP_H

#include "io/json.h"
#include <forerun/graph.h>
#include <forerun/io.h>

enum { FR_MAX_JOINED = 3, FR_TENSOR_NAME = 512 };

typedef struct fr__weight_rule {
    const char *own; /* names in Forerun */
    /* The tensors that hold the parameter: equal parts of its first dimension, in this order. None:
     * that program has no such parameter, as if it were zero. */
    const char *theirs[FR_MAX_JOINED];
    bool is_transposed; /* each of them: a matrix (in, out) */
    bool is_bare;       /* without the prefix */
} fr__weight_rule;

typedef struct fr__weight_map {
    const char *name;
    const char *models; /* with commas */
    /* What may precede all names, NULL-terminated; the first one is written unless the weights came
     * with another. */
    const char *const *prefixes;
    const fr__weight_rule *rules; /* ended by a rule without own */
    const char *const *ignored;   /* patterns of tensors without a parameter; NULL: none */
    /* The description of the network in config.json, which weights do not show: compare it with a
     * graph, and write it. NULL: none. */
    fr_status (*check)(fr_ctx *ctx, const fr_graph *g, const char *path);
    void (*describe)(const fr_graph *g, const char *dtype, fr__json *j);
} fr__weight_map;

/* The map of a model; NULL: only Forerun's own names. */
const fr__weight_map *fr__weight_map_of(const char *model);

/* A parameter under the names of a map (NULL: its own, with the prefix ""). */
typedef struct fr__weight_names {
    int n; /* 0: zeros */
    char name[FR_MAX_JOINED][FR_TENSOR_NAME];
    bool is_transposed;
} fr__weight_names;
/* False: no rule has this parameter. */
bool fr__weight_names_of(const fr__weight_map *map, const char *prefix, const char *own,
                         fr__weight_names *out);
/* Whether a tensor is one that the map ignores. */
bool fr__weight_is_ignored(const fr__weight_map *map, const char *prefix, const char *tensor);

/* Keys model.weights and model.weights_strict of a `model:` section; *path NULL: not given. */
fr_status fr__model_weights(fr_conf *model_section, const char **path, bool *is_strict);

/* config.json of Hugging Face's GPT-2 (gpt2_config.c). */
fr_status fr__gpt2_check(fr_ctx *ctx, const fr_graph *g, const char *path);
void fr__gpt2_describe(const fr_graph *g, const char *dtype, fr__json *j);

#endif
