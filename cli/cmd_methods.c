/* cmd_methods.c -- forerun methods: names that config keys take, with a line on each. */
#include "cli.h"

#include <stdio.h>

/* One section: the key, then its names. All lists hold records with a name and a summary. */
#define SECTION(key, list)                                               \
    do {                                                                 \
        printf("%s\n", key);                                             \
        for (int i = 0; (list)[i]; i++)                                  \
            printf("  %-15s %s\n", (list)[i]->name, (list)[i]->summary); \
    } while (0)

static int run(const cli_verb *verb, int argc, char **argv)
{
    const cli_option options[] = {{NULL, NULL, NULL, CLI_FLAG, NULL}};
    int code = cli_parse(verb, options, argc, argv, 0, NULL);
    if (code >= 0) return code;
    SECTION("parallel.method", fr_method_list());
    SECTION("parallel.weights (a method's own unless given)", fr_policy_list());
    SECTION("schedules, as `forerun schedule` prints them", fr_generator_list());
    SECTION("train.optimizer.name", fr_optim_list());
    SECTION("train.schedule.name", fr_lr_list());
    SECTION("data.name", fr_data_list());
    return 0;
}

const cli_verb cli_methods = {
    .name = "methods",
    .usage = "methods",
    .summary = "parallel methods, weights, schedules, optimizers, data sources there are",
    .run = run,
};
