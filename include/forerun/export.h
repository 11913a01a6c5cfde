/* export.h -- trained weights as files for other programs. */
#ifndef FORERUN_EXPORT_H
#define FORERUN_EXPORT_H

#include <forerun/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_export_options {
    const char *out; /* folder to be made; it may be there if it is empty */
    /* Names of tensors: "hf": those of Hugging Face or torchvision for this model, with config.json
     * where there is one; "safetensors": Forerun's. NULL: those of model.weights, else Forerun's.
     */
    const char *format;
    const char *dtype;      /* "f32", "bf16", "f16"; NULL: f32 */
    const char *shard_size; /* "5 GB": a new file before one is larger; NULL: that */
} fr_export_options;

typedef struct fr_export_result {
    int n_files, n_tensors;
    uint64_t bytes;    /* of all values */
    const char *names; /* whose: "gpt2", "torchvision", "Forerun" */
} fr_export_result;

/* Write the weights of a checkpoint (o->checkpoint, else the newest of the config's run.out, else
 * model.weights), whole or not at all. Memory: one parameter. *result may be NULL. */
FR_API FR_MUST_USE fr_status fr_export(fr_ctx *ctx, const fr_run_options *o,
                                       const fr_export_options *x, fr_export_result *result);

#ifdef __cplusplus
}
#endif
#endif
