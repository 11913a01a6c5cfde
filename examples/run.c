/* run.c -- Forerun as a library, the short way: open a run, step, predict, close.
 *
 *     cc run.c $(pkg-config --cflags --libs forerun) -o run && ./run
 *
 * The network learns which points of a square are inside a circle, in two pipelined stages. */
#include <forerun/forerun.h>
#include <stdio.h>

enum { N = 512 };

static const char config[] =
    "model: {name: mlp, inputs: 2, depth: 3, width: 32, classes: 2}\n"
    "train: {batch: 64, micro: 2, steps: 120, optimizer: {name: adam, lr: 0.01}}\n"
    "parallel: {method: spectrain, stages: 2, threads: 1}\n";

static int32_t is_inside(const float p[2]) { return p[0] * p[0] + p[1] * p[1] < 0.5f; }

static fr_status open_run(fr_ctx *ctx, float (*points)[2], int32_t *classes, fr_dataset **data,
                          fr_run **run)
{
    for (int i = 0; i < N; i++) { /* a lattice that fills the square evenly */
        points[i][0] = (float)(i * 277 % N) * (2.0f / N) - 1;
        points[i][1] = (float)i * (2.0f / N) - 1;
        classes[i] = is_inside(points[i]);
    }
    fr_dataset_desc d = {.info = {.n_train = N, .input = FR_SHAPE(2), .n_classes = 2},
                         .samples[FR_TRAIN] = {.input = points, .target = classes}};
    FR_TRY(fr_dataset_create(ctx, &d, data));
    fr_run_options o = {.size = sizeof o, .config_text = config, .data = *data};
    o.want_outputs = true;
    return fr_run_open(ctx, &o, run);
}

static fr_status train(fr_run *run)
{
    while (!fr_run_is_over(run)) {
        fr_progress p;
        FR_TRY(fr_run_step(run, 30, NULL));
        fr_run_progress(run, &p);
        printf("update %lld of %lld: loss %.4f\n", (long long)p.step, (long long)p.n_steps, p.loss);
    }
    return FR_OK;
}

/* Predict some other points. */
static fr_status test(fr_ctx *ctx, fr_run *run)
{
    static const float points[][2] = {{0, 0},        {0.3f, -0.3f}, {-0.5f, 0.1f}, {0.2f, 0.4f},
                                      {0.9f, -0.9f}, {-1, 0},       {0.1f, 0.95f}, {-0.8f, -0.8f}};
    enum { N_POINTS = sizeof points / sizeof *points };
    float outputs[N_POINTS][2];
    int n_right = 0;
    FR_TRY(fr_run_predict(run, N_POINTS, points, NULL, outputs[0]));
    for (int i = 0; i < N_POINTS; i++)
        n_right += (outputs[i][1] > outputs[i][0]) == is_inside(points[i]);
    printf("%d of %d points are right\n", n_right, N_POINTS);
    return n_right == N_POINTS ? FR_OK : fr_fail(ctx, FR_INTERNAL, "too few points are right");
}

int main(void)
{
    static float points[N][2];
    static int32_t classes[N];
    fr_dataset *data = NULL;
    fr_run *run = NULL;
    fr_ctx *ctx = fr_ctx_create();
    if (!ctx) return 1;
    fr_status status = open_run(ctx, points, classes, &data, &run);
    if (status == FR_OK) status = train(run);
    if (status == FR_OK) status = test(ctx, run);
    if (status != FR_OK) fprintf(stderr, "run: %s\n", fr_ctx_error(ctx));
    (void)fr_run_close(run, NULL);
    fr_dataset_close(data);
    fr_ctx_free(ctx);
    return fr_status_exit_code(status);
}
