/* links.h -- links of a schedule: their buffers and channels, the tensors in them, and the
 * passes that use them. */
#ifndef FR_ENGINE_LINKS_H
#define FR_ENGINE_LINKS_H

#include <forerun/exec_plan.h>
#include <forerun/state.h>

#include "exec/exec.h"

typedef struct fr__worker fr__worker;
typedef struct fr__part fr__part;
typedef struct fr__record fr__record;
typedef struct fr__coordinator fr__coordinator;
typedef struct fr__link_channel fr__link_channel;
typedef struct fr__link_buffers fr__link_buffers;

/* A link between two parts. Forward: the outputs of part `from`, which are in its slots, one buffer
 * per slot. Backward: gradients, in buffers of their own. */
struct fr__link_channel {
    fr__part *from, *to;
    bool is_used;       /* some micro-batch goes this way */
    fr_channel *handle; /* NULL: both on one worker */
    char *memory;       /* [n_buffers], of the sender */
    const void **data;  /* [n_buffers]: where the receiver reads it */
};

/* A link of the schedule. */
struct fr__link_buffers {
    int from, to;     /* stages */
    int n_from, n_to; /* replicas of them */
    int n_buffers;    /* of each channel */
    size_t bytes, stride;
    fr__link_channel *channels; /* [n_from][n_to] */
};

static inline fr__link_channel *fr__channel_of(const fr__link_buffers *r, int micro)
{
    return &r->channels[micro % r->n_from * r->n_to + micro % r->n_to];
}

/* The tensors that a stage sends, known without compiling it: values in order of nodes, and the
 * gradients of its inputs. */
typedef struct fr__stage_io {
    size_t output_bytes;  /* of all outputs, aligned */
    size_t *value_offset; /* [node of the stage]: among the outputs; SIZE_MAX: not one */
    fr__tensor_ref *grad; /* [input of fr_stage]: where its gradient goes, on a backward link */
} fr__stage_io;

/* stage_io.c: tensors between all stages, before anything is compiled. */
fr_status fr__stage_io_find(fr_engine *e);
int fr__maker_of(const fr_engine *e, int node); /* stage */
/* The gradient of `node` as stage `reader` sends it down; the nearest reader above `stage`, or -1.
 */
fr__tensor_ref fr__grad_ref(const fr_engine *e, int reader, int node);
int fr__reader_above(const fr_engine *e, int stage, int node);

/* links.c: tensor references and sizes before allocation, memory and channels after it. */
fr_status fr__links_plan(fr_engine *e);
fr_status fr__links_open(fr_engine *e);

/* passes.c */
fr_status fr__pass_forward(fr__part *p, int64_t batch, int micro, int in_segment, fr_event *event);
fr_status fr__pass_recompute(fr__part *p, int64_t batch, int micro, int in_segment,
                             fr_event *event);
fr_status fr__pass_backward(fr__part *p, int64_t batch, int micro, int in_segment, int what,
                            fr_event *event);
/* Wait until the reader is done with a buffer; noted as waiting. */
fr_status fr__acquire(fr__worker *w, fr__link_channel *channel, int buffer);
/* Return the buffers of a micro-batch to their senders. */
void fr__release_inputs(fr__part *p, fr__mode mode, int in_segment);
void fr__release_grads(fr__part *p, int in_segment);

#endif
