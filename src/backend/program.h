/* program.h -- a compiled stage: kernels in order, step lists, places of all tensors.
 *
 * Made by program.c (groups, kernels, parameters), plan_forward.c and plan_backward.c (memory);
 * walked by program_run.c. Units are small, because there may be one for each of 100,000 nodes.
 * After creation only cache_ids and meter change. */
#ifndef FR_BACKEND_PROGRAM_H
#define FR_BACKEND_PROGRAM_H

#include "backend/kernel.h"
#include "backend/memplan.h"
#include "base/vec.h"

#include <stdatomic.h>

/* Where a tensor is when a pass runs. */
typedef enum fr__area {
    FR_AREA_NONE,
    FR_AREA_SLOT,  /* offset bytes into the slot */
    FR_AREA_AGAIN, /* offset bytes into the area of recomputed values */
    FR_AREA_WORK,  /* offset bytes into the workspace */
    FR_AREA_INPUT, /* port number `offset` */
    FR_AREA_OUTPUT,
    FR_AREA_INPUT_GRAD,
    FR_AREA_OUTPUT_GRAD
} fr__area;

typedef struct fr__tensor_place {
    uint64_t area : 4, offset : 60;
} fr__tensor_place;

static inline fr__tensor_place fr__place_at(fr__area area, size_t offset)
{
    return (fr__tensor_place){.area = area & 15u, .offset = offset & (((uint64_t)1 << 60) - 1)};
}

typedef struct fr__unit_input {
    int node;
    bool need_dx, add_dx; /* a gradient is needed; it is added to the present value */
    fr__tensor_place dx;  /* NONE where not computed */
} fr__unit_input;

/* One group compiled: nodes that one kernel computes, in order. */
typedef struct fr__unit {
    fr__kernel *kernel;
    fr__unit_input *inputs; /* (n_inputs) as in fr__kernel_spec */
    uint8_t n_nodes, n_inputs, n_params;
    bool again;   /* its forward runs again before the backward */
    bool trained; /* it makes weight gradients */
    int nodes[FR_MAX_GROUP];
    int params[FR_MAX_PARAMS]; /* placements; trained and buffers as the nodes list them */
    size_t saved, cache;       /* offsets into slot (or area) and cache block */
    fr__tensor_place dz;       /* dy after prepare_dy, or dy */
} fr__unit;

/* The node whose value a unit makes. */
static inline int fr__unit_out(const fr__unit *u) { return u->nodes[u->n_nodes - 1]; }

/* The backward of a unit computes something. */
static inline bool fr__unit_goes_back(const fr__unit *u)
{
    bool wants_dx = false;
    for (int i = 0; i < u->n_inputs; i++) wants_dx |= u->inputs[i].need_dx;
    return u->trained || wants_dx;
}

typedef enum fr__step_kind {
    FR_STEP_FORWARD,
    FR_STEP_PREPARE, /* dz from dy */
    FR_STEP_INPUT,
    FR_STEP_WEIGHT,
    FR_STEP_NO_GRAD, /* the unit's output reaches no loss: its gradients are zero */
    FR_STEP_FROZEN,  /* all parameters of the unit are frozen: they have no gradients */
    FR_STEP_COPY,    /* to = from, `bytes` of them */
    FR_STEP_ADD      /* to += from, `bytes` of elements of type dtype */
} fr__step_kind;

typedef struct fr__step {
    fr__step_kind kind;
    int unit; /* that the step belongs to */
    fr__tensor_place to, from;
    size_t bytes;
    fr_dtype dtype;
} fr__step;

typedef FR_VEC(fr__step) fr__step_list;

typedef struct fr__placed_param {
    fr_placement pub;
    fr__layout layout;    /* device layout; desc owned by the kernel */
    size_t weight_offset; /* floats; of the owner for a tied parameter */
    bool is_tied, is_buffer;
    int owner; /* placement of the owner, for a tied parameter */
} fr__placed_param;

/* Times of the current pass, if requested. grad_ready may be called from any thread. */
typedef struct fr__meter {
    fr_node_time *times; /* [node]; NULL: not requested */
    const fr_pass *pass; /* the caller's */
    _Atomic uint64_t ready_ns;
} fr__meter;

struct fr_program {
    fr_ctx *ctx;
    fr_device *dev;
    fr_arena arena, making; /* making: working memory of a step of the creation, freed after it */
    const fr_graph *graph;
    fr_program_desc desc;
    fr_stage stage;
    fr_program_sizes sizes;
    int n_units;
    fr__unit *units;
    int n_local;  /* nodes of the stage, then inputs from outside it: fr__local */
    int *unit_of; /* [local]: unit that makes its value, or -1 */
    int *home_of; /* [local]: unit that it is a part of, or -1 */
    int n_inputs, n_outputs;
    fr_port *inputs, *outputs; /* in order of nodes */
    int n_params, first_param; /* of the graph's, the first of the stage */
    fr__placed_param *params;
    int *placed;                                    /* [param - first_param]: in params, or -1 */
    fr__tensor_place *value;                        /* [local]: where its value is */
    const fr__layout **layout;                      /* [local] */
    fr__step_list forward, back_input, back_weight; /* joint backward: all in back_input */
    fr__step_list again;                            /* of forward, those of units that run again */
    size_t scratch;                                 /* offset in the workspace */
    void *cache;
    uint64_t *cache_ids; /* [unit]: weights the unit's cache was derived from */
    size_t *kept;        /* [local]: bytes of the slot */
    size_t *values;      /* [local]: most bytes of the workspace in use while its kernels run */
    size_t *scratches;   /* [local]: bytes behind them for the kernel of the group it begins */
    fr__meter meter;
};

static inline bool fr__in_stage(const fr_program *p, int node)
{
    return node >= p->stage.first && node < p->stage.last &&
           fr_graph_node(p->graph, node)->op != FR_OP_INPUT;
}

/* The place of a node in the arrays by node: of the stage, or an input; else -1. */
static inline int fr__local(const fr_program *p, int node)
{
    const fr_stage *s = &p->stage;
    if (node >= s->first && node < s->last) return node - s->first;
    int port = fr_program_find_input(p, node);
    return port < 0 ? -1 : s->last - s->first + port;
}

/* Record the bytes in use of the workspace at each step of a list (NULL: one step per unit). Leases
 * count in those steps. */
fr_status fr__note_values(fr_program *p, const fr__lease *leases, int n, int n_steps,
                          const fr__step *steps);
/* Reserve bytes for this node, in the slot or in the area of recomputed values. */
fr__tensor_place fr__slot_take(fr_program *p, int node, size_t bytes, bool again);
/* Which units run again. Needs the kernels. */
fr_status fr__plan_again(fr_program *p);
/* Place all values; fills value, forward, sizes.slot_bytes; returns workspace bytes or fails. */
fr_status fr__plan_forward(fr_program *p, size_t *work_bytes);
/* Place all gradients; fills units' dx, dy, dz, back lists; adds to sizes.slot_bytes. */
fr_status fr__plan_backward(fr_program *p, size_t *work_bytes);

#endif
