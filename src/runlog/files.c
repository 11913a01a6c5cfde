/* files.c -- the files of a run's folder: one table for documentation and tests. */
#include <forerun/train.h>

static const fr_run_file files[] = {
    {"config.yaml", "train", NULL,
     "the resolved config: every key with its value; itself a config"},
    {"metrics.jsonl", "train", NULL, "one JSON object per line, one line per mini-batch"},
    {"metrics.csv", "train", "run.csv", "the same as a table"},
    {"events.out.tfevents.*", "train", "run.tensorboard",
     "the same for TensorBoard, one file per session"},
    {"summary.json", "train", NULL, "settings and results of the run"},
    {"trace.json", "train", "run.trace", "timeline of each worker, for Perfetto"},
    {"report.html", "train", "run.report", "the report of the run, in one file"},
    {"checkpoint/step-N/model.safetensors", "train", NULL,
     "parameters and running statistics after N updates"},
    {"checkpoint/step-N/optimizer.safetensors", "train", NULL, "the optimizer's state"},
    {"checkpoint/step-N/state.json", "train", NULL,
     "position of the run, what a resumed run must agree with, hashes of the other files"},
    {"step-K.safetensors", "train", "--dump-step K",
     "inputs, weights and gradients of mini-batch K"},
    {NULL, NULL, NULL, NULL},
};

const fr_run_file *fr_run_files(void) { return files; }
