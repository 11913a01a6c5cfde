/* weight_map.c -- the maps, and names by their patterns. */
#include "models/weight_map.h"

#include "io/conf.h"
#include "io/key.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Hugging Face's GPT-2. Its Conv1D stores matrices as (in, out). lm_head is outside of the part
 * that the prefix names; files of the part alone have neither. Older files have the causal mask as
 * a tensor. */
#define SAME(name_here, name_there)                \
    {                                              \
        .own = name_here, .theirs = { name_there } \
    }
#define TURNED(name_here, name_there)                                   \
    {                                                                   \
        .own = name_here, .theirs = {name_there}, .is_transposed = true \
    }
#define END         \
    {               \
        .own = NULL \
    }

static const fr__weight_rule gpt2_rules[] = {
    SAME("embed.weight", "wte.weight"),
    SAME("embed.position", "wpe.weight"),
    SAME("h.#.ln_*", "h.#.ln_*"),
    TURNED("h.#.attn.qkv.weight", "h.#.attn.c_attn.weight"),
    SAME("h.#.attn.qkv.bias", "h.#.attn.c_attn.bias"),
    TURNED("h.#.attn.proj.weight", "h.#.attn.c_proj.weight"),
    SAME("h.#.attn.proj.bias", "h.#.attn.c_proj.bias"),
    TURNED("h.#.mlp.up.weight", "h.#.mlp.c_fc.weight"),
    SAME("h.#.mlp.up.bias", "h.#.mlp.c_fc.bias"),
    TURNED("h.#.mlp.down.weight", "h.#.mlp.c_proj.weight"),
    SAME("h.#.mlp.down.bias", "h.#.mlp.c_proj.bias"),
    SAME("ln_f.*", "ln_f.*"),
    {.own = "head.weight", .theirs = {"lm_head.weight"}, .is_bare = true},
    {.own = "head.bias"},
    END,
};

static const fr__weight_rule alexnet_rules[] = {
    SAME("features.0.conv.*", "features.0.*"),
    SAME("features.1.conv.*", "features.3.*"),
    SAME("features.2.conv.*", "features.6.*"),
    SAME("features.3.conv.*", "features.8.*"),
    SAME("features.4.conv.*", "features.10.*"),
    SAME("classifier.*", "classifier.*"),
    END,
};

/* Forerun has torchvision's names for these. */
static const fr__weight_rule same_rules[] = {SAME("*", "*"), END};

/* nn.DataParallel puts "module." before all names. */
static const char *const torch_prefixes[] = {"", "module.", NULL};
static const char *const gpt2_prefixes[] = {"transformer.", "", NULL};
static const char *const gpt2_ignored[] = {"h.#.attn.bias", "h.#.attn.masked_bias", NULL};
/* A counter beside the running statistics; its momentum of 0.1 does not depend on it. */
static const char *const norm_ignored[] = {
    "bn#.num_batches_tracked", "layer#.#.bn#.num_batches_tracked",
    "layer#.#.downsample.#.num_batches_tracked", "features.#.num_batches_tracked", NULL};

static const fr__weight_map maps[] = {
    {"gpt2", "gpt", gpt2_prefixes, gpt2_rules, gpt2_ignored, fr__gpt2_check, fr__gpt2_describe},
    {"torchvision", "alexnet", torch_prefixes, alexnet_rules, NULL, NULL, NULL},
    {"torchvision", "vgg16, resnet50, resnet101, resnet152", torch_prefixes, same_rules,
     norm_ignored, NULL, NULL},
};

const fr__weight_map *fr__weight_map_of(const char *model)
{
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (fr__has_name(maps[i].models, model)) return &maps[i];
    return NULL;
}

/* --- patterns --------------------------------------------------------------------------------- */

enum { MAX_PIECES = 4 };

/* The texts that '#' and '*' stand for, in their order. */
typedef struct pieces {
    int n;
    const char *at[MAX_PIECES];
    size_t length[MAX_PIECES];
} pieces;

static bool fits(const char *pattern, const char *name, pieces *p)
{
    p->n = 0;
    for (; *pattern; pattern++) {
        size_t length = 0;
        if (*pattern != '#' && *pattern != '*') {
            if (*pattern != *name++) return false;
            continue;
        }
        if (*pattern == '*')
            length = strlen(name);
        else
            while (isdigit((unsigned char)name[length])) length++;
        if (length == 0 || p->n == MAX_PIECES) return false;
        p->at[p->n] = name, p->length[p->n++] = length;
        name += length;
    }
    return *name == '\0';
}

/* False: the name is too long. */
static bool fill(const char *prefix, const char *pattern, const pieces *p, char *to, size_t room)
{
    int next = 0;
    size_t n = (size_t)snprintf(to, room, "%s", prefix);
    for (; *pattern && n < room; pattern++) {
        const char *text = pattern;
        size_t length = 1;
        if ((*pattern == '#' || *pattern == '*') && next < p->n)
            text = p->at[next], length = p->length[next++];
        if (length >= room - n) return false;
        memcpy(to + n, text, length);
        to[n += length] = '\0';
    }
    return n < room;
}

bool fr__weight_names_of(const fr__weight_map *map, const char *prefix, const char *own,
                         fr__weight_names *out)
{
    static const fr__weight_map none = {.rules = same_rules};
    pieces p;
    const fr__weight_rule *r = map ? map->rules : none.rules;
    while (r->own && !fits(r->own, own, &p)) r++;
    *out = (fr__weight_names){.is_transposed = r->is_transposed};
    if (!r->own) return false;
    for (; out->n < FR_MAX_JOINED && r->theirs[out->n]; out->n++)
        if (!fill(r->is_bare ? "" : prefix, r->theirs[out->n], &p, out->name[out->n],
                  FR_TENSOR_NAME))
            return false;
    return true;
}

bool fr__weight_is_ignored(const fr__weight_map *map, const char *prefix, const char *tensor)
{
    pieces p;
    size_t n = strlen(prefix);
    if (!map || !map->ignored || strncmp(tensor, prefix, n) != 0) return false;
    for (const char *const *i = map->ignored; *i; i++)
        if (fits(*i, tensor + n, &p)) return true;
    return false;
}

/* --- the keys --------------------------------------------------------------------------------- */

fr_status fr__model_weights(fr_conf *c, const char **path, bool *is_strict)
{
    *path = NULL;
    *is_strict = true;
    if (!fr_conf_has(c, "weights")) {
        if (!fr_conf_has(c, "weights_strict")) return FR_OK;
        return fr_conf_fail(c, "weights_strict",
                            "weights_strict is about model.weights, which is "
                            "not given");
    }
    FR_TRY(fr__conf_data(c, "weights", NULL, path));
    if (!**path) return fr_conf_fail(c, "weights", "weights is empty; give a file or folder");
    return fr_conf_bool(c, "weights_strict", true, is_strict);
}
