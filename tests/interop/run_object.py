#!/usr/bin/env python3
"""run_object.py -- a run from Python, through the C interface alone (cffi, ABI mode).

  run_object.py LIBRARY        (libforerun.so)

Trains a small network on points of the plane whose class is their quadrant, held by Python. The loss must go
down, predictions must be right, weights must go in and out, and errors must come with their text. Exit code 1
if anything is not so.
"""
import random
import sys

from cffi import FFI

DECLARATIONS = """
typedef enum { FR_OK, FR_NO_MEMORY, FR_INVALID, FR_IO, FR_UNSUPPORTED, FR_PEER, FR_DIVERGED, FR_INTERRUPTED,
               FR_INTERNAL } fr_status;
typedef struct fr_ctx fr_ctx;
typedef struct fr_team fr_team;
typedef struct fr_graph fr_graph;
typedef struct fr_dataset fr_dataset;
typedef struct fr_run fr_run;
fr_ctx *fr_ctx_create(void);
void fr_ctx_free(fr_ctx *ctx);
const char *fr_ctx_error(fr_ctx *ctx);

typedef struct { int n_dims; int64_t dim[4]; } fr_shape;
typedef struct {
    int64_t n_train, n_eval;
    fr_shape input;
    int input_dtype;
    fr_shape target;
    int64_t n_classes, vocab;
    bool has_length, has_float_targets;
} fr_data_info;
typedef struct { const void *input; const void *target; const int32_t *length; } fr_samples;
typedef struct {
    fr_data_info info;
    void *read, *user;
    fr_samples samples[2];
} fr_dataset_desc;
fr_status fr_dataset_create(fr_ctx *ctx, const fr_dataset_desc *desc, fr_dataset **out);
void fr_dataset_close(fr_dataset *d);

typedef struct {
    int64_t step, n_steps, samples;
    double loss, lr, samples_per_s, elapsed_s, left_s, grad_norm, eval_loss, eval_accuracy;
    const char *checkpoint, *out;
    double eval_mae, eval_perplexity;
} fr_progress;
typedef struct {
    size_t size;
    fr_team *team;
    const char *config;
    int n_sets;
    const char *const *sets;
    const char *out;
    bool resume, want_outputs;
    int64_t dump_step;
    const char *ledger, *checkpoint;
    void *progress, *over, *user;
    volatile int *stop;
    const char *config_text;
    fr_graph *graph;
    fr_dataset *data;
} fr_run_options;
fr_status fr_run_open(fr_ctx *ctx, const fr_run_options *o, fr_run **out);
fr_status fr_run_step(fr_run *r, int64_t n, int64_t *n_done);
bool fr_run_is_over(const fr_run *r);
fr_status fr_run_evaluate(fr_run *r, double *loss, double *accuracy);
fr_status fr_run_predict(fr_run *r, int64_t n, const void *input, const int32_t *length, float *outputs);
fr_status fr_run_get_param(fr_run *r, const char *name, int64_t n, float *values);
fr_status fr_run_set_param(fr_run *r, const char *name, int64_t n, const float *values);
void fr_run_progress(const fr_run *r, fr_progress *out);
fr_status fr_run_close(fr_run *r, void *result);
"""

CONFIG = b"""
model: {name: mlp, inputs: 2, depth: 2, width: 24, classes: 4}
train: {batch: 60, micro: 2, steps: 80, optimizer: {name: adam, lr: 0.02}}
parallel: {method: 1f1b, stages: 2, threads: 1}
run: {eval_every: -1}
"""
N_TRAIN, N_EVAL, WIDTH, CLASSES = 600, 200, 24, 4

ffi = FFI()
ffi.cdef(DECLARATIONS)


def quadrant(x, y):
    return 2 * (x > 0) + (y > 0)


def make_samples(n, rng):
    points = [(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(n)]
    inputs = ffi.new("float[]", [v for p in points for v in p])
    return inputs, ffi.new("int32_t[]", [quadrant(*p) for p in points])


def main():
    lib = ffi.dlopen(sys.argv[1])
    ctx = lib.fr_ctx_create()

    def check(status):
        if status != lib.FR_OK:
            sys.exit("run_object.py: " + ffi.string(lib.fr_ctx_error(ctx)).decode())

    rng = random.Random(7)
    train, test = make_samples(N_TRAIN, rng), make_samples(N_EVAL, rng)
    desc = ffi.new("fr_dataset_desc *")
    desc.info.n_train, desc.info.n_eval, desc.info.n_classes = N_TRAIN, N_EVAL, CLASSES
    desc.info.input.n_dims, desc.info.input.dim[0] = 1, 2
    for split, (inputs, targets) in enumerate((train, test)):
        desc.samples[split].input, desc.samples[split].target = inputs, targets
    data, run = ffi.new("fr_dataset **"), ffi.new("fr_run **")
    check(lib.fr_dataset_create(ctx, desc, data))

    options = ffi.new("fr_run_options *", {"data": data[0], "want_outputs": True})
    text = ffi.new("char[]", CONFIG)
    options.size, options.config_text = ffi.sizeof("fr_run_options"), text
    check(lib.fr_run_open(ctx, options, run))
    run = run[0]

    loss, accuracy, progress = ffi.new("double *"), ffi.new("double *"), ffi.new("fr_progress *")
    check(lib.fr_run_evaluate(run, loss, accuracy))
    losses = [loss[0]]
    while not lib.fr_run_is_over(run):
        check(lib.fr_run_step(run, 20, ffi.NULL))
        check(lib.fr_run_evaluate(run, loss, accuracy))
        losses.append(loss[0])
    lib.fr_run_progress(run, progress)
    assert progress.step == 80 and len(losses) == 5, (progress.step, losses)
    assert losses[-1] < losses[0] / 4, losses
    outputs = ffi.new("float[]", N_EVAL * CLASSES)
    check(lib.fr_run_predict(run, N_EVAL, test[0], ffi.NULL, outputs))
    rows = [outputs[i * CLASSES : (i + 1) * CLASSES] for i in range(N_EVAL)]
    right = sum(max(range(CLASSES), key=lambda k: row[k]) == test[1][i] for i, row in enumerate(rows))
    assert right > 0.9 * N_EVAL, right
    assert abs(accuracy[0] - right / N_EVAL) < 1e-9, (accuracy[0], right)

    # A bias that is large enough decides alone.
    bias = ffi.new("float[]", CLASSES)
    check(lib.fr_run_get_param(run, b"head.bias", CLASSES, bias))
    bias[2] += 1000
    check(lib.fr_run_set_param(run, b"head.bias", CLASSES, bias))
    check(lib.fr_run_predict(run, 3, test[0], ffi.NULL, outputs))
    assert all(outputs[i * CLASSES + 2] > 900 for i in range(3))

    assert lib.fr_run_get_param(run, b"head.bias", 1, bias) == lib.FR_INVALID
    assert b"head.bias has 4 values" in ffi.string(lib.fr_ctx_error(ctx)), ffi.string(lib.fr_ctx_error(ctx))
    check(lib.fr_run_close(run, ffi.NULL))
    lib.fr_dataset_close(data[0])
    lib.fr_ctx_free(ctx)
    print(f"from Python: loss {losses[0]:.3f} to {losses[-1]:.3f}, {right} of {N_EVAL} predictions are right")


main()
