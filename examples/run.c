/* run.c -- Forerun as a library, the short way: a run as a config says.
 *
 *     cc run.c $(pkg-config --cflags --libs forerun) -o run && ./run net.yaml */
#include <forerun/forerun.h>
#include <math.h>
#include <stdio.h>

static void on_progress(void *user, const fr_progress *p)
{
    (void)user;
    if (!isnan(p->eval_accuracy) || p->step == p->n_steps)
        printf("update %lld of %lld: loss %.4f\n", (long long)p->step, (long long)p->n_steps,
               p->loss);
}

int main(int argc, char **argv)
{
    fr_ctx *ctx = fr_ctx_create();
    if (!ctx || argc < 2) {
        fprintf(stderr, "usage: run CONFIG\n");
        fr_ctx_free(ctx);
        return 2;
    }
    const char *const sets[] = {"parallel.method=spectrain", "parallel.stages=2"};
    fr_run_options o = {.config = argv[1], .n_sets = 2, .sets = sets, .progress = on_progress};
    fr_run_result r;
    fr_status status = fr_train(ctx, &o, &r);
    if (status == FR_OK)
        printf("accuracy %.1f %%, %.0f samples/s; everything is in %s\n", 100 * r.eval_accuracy,
               r.samples_per_s, r.out);
    else
        fprintf(stderr, "run: %s\n", fr_ctx_error(ctx));
    fr_ctx_free(ctx);
    return fr_status_exit_code(status);
}
