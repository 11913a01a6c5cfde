/* verify.c -- checks that checkpoints are whole, without their model and config. */
#include "checkpoint/state.h"
#include "io/file.h"
#include "io/number.h"

#include <string.h>

/* Reads all values of a file through a buffer of the size of its largest tensor. */
static fr_status check_values(fr_ctx *ctx, const char *path, fr_tensors *file)
{
    size_t largest = 0;
    for (int i = 0; i < fr_tensors_count(file); i++)
        if (fr_tensors_info(file, i)->bytes > largest) largest = fr_tensors_info(file, i)->bytes;
    float *values = fr__alloc(largest + 1);
    if (!values) return fr__no_memory(ctx, largest, path);
    fr_status status = FR_OK;
    for (int i = 0; i < fr_tensors_count(file) && status == FR_OK; i++) {
        const fr_tensor_info *t = fr_tensors_info(file, i);
        status = fr_tensors_read(file, i, values, t->bytes);
        bool is_float = strcmp(t->dtype, "F32") == 0;
        if (status == FR_OK && is_float && !fr__are_finite(values, t->bytes / sizeof *values))
            status =
                fr_fail(ctx, FR_INVALID, "%s: %s has values that are not finite", path, t->name);
    }
    fr__free(values);
    return status;
}

static fr_status check_file(fr_ctx *ctx, const char *folder, const fr__state *state,
                            fr__state_file which)
{
    char path[FR_PATH];
    fr_tensors *file;
    FR_TRY(fr__path(ctx, path, "%s/%s", folder, fr__state_files[which]));
    FR_TRY(fr_tensors_open(ctx, path, &file));
    fr_status status = check_values(ctx, path, file);
    if (status == FR_OK) status = fr__state_check_file(ctx, state, which, path, file);
    fr_tensors_close(file);
    return status;
}

static fr_status verify_one(fr_ctx *ctx, const char *folder,
                            void (*each)(void *user, const fr_verdict *v), void *user)
{
    fr__state state;
    fr_verdict v = {.path = folder, .step = -1};
    fr_status status = fr__state_read(ctx, folder, &state);
    if (status == FR_OK) v.step = state.at.step;
    v.format = state.format;
    for (int i = 0; i < FR_N_STATE_FILES && status == FR_OK; i++)
        status = check_file(ctx, folder, &state, (fr__state_file)i);
    if (status == FR_NO_MEMORY) return status;
    if (status != FR_OK) v.damage = fr_ctx_error(ctx);
    each(user, &v);
    return FR_OK;
}

static bool is_checkpoint(const char *folder)
{
    char path[FR_PATH];
    int64_t step;
    if (fr__folder_step_of(folder, &step)) return fr__dir_exists(folder);
    int n = snprintf(path, sizeof path, "%s/state.json", folder);
    return n < FR_PATH && fr__file_exists(path);
}

fr_status fr_checkpoint_verify(fr_ctx *ctx, const char *folder,
                               void (*each)(void *user, const fr_verdict *v), void *user)
{
    char root[FR_PATH], path[FR_PATH];
    fr__steps steps;
    if (is_checkpoint(folder)) return verify_one(ctx, folder, each, user);
    FR_TRY(fr__path(ctx, root, "%s/checkpoint", folder));
    if (!fr__dir_exists(root)) FR_TRY(fr__path(ctx, root, "%s", folder));
    fr_status status = fr__folder_steps(ctx, root, &steps);
    if (status == FR_OK && steps.n == 0)
        status = fr_fail(ctx, FR_INVALID,
                         "%s: no checkpoint there; give the folder of a run, or one of its "
                         "checkpoint/step-N",
                         folder);
    for (size_t i = 0; i < steps.n && status == FR_OK; i++) {
        status = fr__path(ctx, path, "%s/step-%lld", root, (long long)steps.at[i]);
        if (status == FR_OK) status = verify_one(ctx, path, each, user);
    }
    fr__vec_fini(&steps);
    return status;
}
