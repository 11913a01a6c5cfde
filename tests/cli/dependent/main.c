/* main.c -- a program of somebody else that uses the library by its public headers. */
#include <forerun/forerun.h>
#include <stdio.h>

int main(void)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *graph = NULL;
    fr_model_options sizes = {.inputs = 4, .depth = 1, .width = 3, .classes = 2};
    const fr_model *mlp = fr_model_find("mlp");
    if (!ctx || !mlp || fr_model_build(ctx, mlp, &sizes, &graph) != FR_OK) {
        fprintf(stderr, "%s\n", ctx ? fr_ctx_error(ctx) : "no context");
        return 1;
    }
    const fr_backend *cpu = fr_backend_find("cpu");
    printf("%s %lld %s\n", fr_version(), (long long)fr_graph_param_count(graph),
           cpu ? fr_backend_name(cpu) : "none");
    fr_graph_free(graph);
    fr_ctx_free(ctx);
    return 0;
}
