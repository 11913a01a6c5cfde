/* test_deep.c -- a model of 10,000 layers, 100,000 nodes: commands that refuse it, or only look at
 * it, need little memory. Each is run as a process, and the kernel tells how much it had at most.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

#define COMMAND "../forerun" /* tests run in build/tests */
#define MOST_BYTES 200e6

#define GPT                                                                                        \
    "model: {name: gpt, layers: 10000, width: 4, heads: 1, context: 1024, vocab: 8, dropout: 0}\n" \
    "data: {name: synthetic, n: 2000, n_eval: 8}\n"                                                \
    "train: {batch: 1024, micro: 1, steps: 1}\n"                                                   \
    "parallel: {threads: 1}\n"                                                                     \
    "run: {report: false}\n"
#define MLP                                                               \
    "model: {name: mlp, inputs: 4, depth: 10000, width: 4, classes: 4}\n" \
    "data: {name: synthetic, n: 100, n_eval: 8}\n"                        \
    "train: {batch: 8, micro: 2, steps: 1}\n"                             \
    "parallel: {threads: 1}\n"                                            \
    "run: {report: false}\n"

/* Run the command; its exit code must be `code`. Returns the largest resident size in bytes. */
static double peak_of(int code, char *const *arguments)
{
    int status = 0;
    struct rusage usage;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr))
            execv(COMMAND, arguments);
        _exit(127);
    }
    assert_int_equal(wait4(pid, &status, 0, &usage), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        fail_msg("forerun %s: status %x, expected exit code %d", arguments[1], (unsigned)status,
                 code);
    return 1024.0 * (double)usage.ru_maxrss;
}

/* The argument "@" stands for a file with this text, extended by zeros to so many bytes. */
static void check_sized(const char *text, off_t bytes, int code, const char *const *arguments)
{
    char folder[] = "/tmp/forerun-deep-XXXXXX", path[64], line[128];
    char *argv[16] = {(char *)(uintptr_t)COMMAND};
#ifdef FR_SANITIZED
    skip_because("peak memory of a deep model", "sanitizers hold memory of their own");
#endif
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/deep", folder);
    for (int i = 0; arguments[i]; i++)
        argv[1 + i] = arguments[i][0] == '@' ? path : (char *)(uintptr_t)arguments[i];
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    if (bytes) assert_int_equal(truncate(path, bytes), 0);
    double peak = peak_of(code, argv);
    snprintf(line, sizeof line, "rm -rf %s", folder);
    assert_int_equal(system(line), 0);
    print_message("%s: %.1f MB\n", arguments[0], peak * 1e-6);
    assert_true(peak < MOST_BYTES);
}

static void check(const char *text, int code, const char *const *arguments)
{
    check_sized(text, 0, code, arguments);
}

/* Terabytes of activations: refused when everything has been compiled and added up. */
static void refused_for_memory(void **state)
{
    (void)state;
    check(GPT, 1, (const char *const[]){"train", "@", "--out", "deep-run", "--quiet", NULL});
    assert_int_not_equal(access("deep-run", F_OK), 0);
}

static void stages_refused(void **state)
{
    (void)state;
    check(GPT, 1,
          (const char *const[]){"train", "@", "--out", "deep-run", "--quiet", "--set",
                                "parallel={method: 1f1b, stages: 4, threads: 1}", "--set",
                                "train.micro=8", NULL});
    assert_int_not_equal(access("deep-run", F_OK), 0);
}

static void mlp_simulated(void **state)
{
    (void)state;
    check(MLP, 0, (const char *const[]){"simulate", "@", "--quiet", NULL});
}

/* Planners that place operators one by one refuse what they cannot place in any time. */
static void planners_refuse(void **state)
{
    (void)state;
    enum { NODES = 100000, ROOM = 512 };
    static char text[NODES * ROOM]; /* a skipped test frees nothing */
    size_t n = (size_t)snprintf(text, ROOM, "{\"format\": 1, \"model\": \"deep\", \"nodes\": [\n");
    for (int i = 0; i < NODES; i++) /* the first has no input: 0 in no digits is empty */
        n += (size_t)snprintf(
            text + n, ROOM,
            "{\"name\": \"h.%d.mlp\", \"about\": \"linear (8, 16)\", \"forward_s\": 3.17281e-06, "
            "\"backward_s\": 7.98182e-06, \"back_input_s\": 3.98112e-06, \"back_weight_s\": "
            "4.00070e-06, \"update_s\": 1.28172e-07, \"flops\": 24576, \"output_bytes\": 4096, "
            "\"kept_bytes\": 4096, \"param_bytes\": 320, \"fixed_bytes\": 0, "
            "\"values_bytes\": 8192, \"scratch_bytes\": 0, \"edge_bytes\": 0, \"inputs\": "
            "[%.*d]}%s",
            i, i > 0, i ? i - 1 : 0, i + 1 < NODES ? ",\n" : "]}\n");
    static const char *const planners[] = {"brute", "dlplacer"};
    for (int k = 0; k < 2; k++)
        check(text, 2,
              (const char *const[]){"plan", "--profile", "@", "--machines", "4", "--bandwidth",
                                    "1e9", "--planner", planners[k], NULL});
}

/* Files above the limit of their kind are refused by their size. */
static void huge_files(void **state)
{
    (void)state;
    const off_t bytes = (off_t)1 << 33;
    check_sized("", bytes, 2, (const char *const[]){"train", "@", NULL});
    check_sized("", bytes, 2, (const char *const[]){"schedule", "--check", "@", NULL});
    check_sized("{", bytes, 2, (const char *const[]){"profile", "--read", "@", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_for_memory), cmocka_unit_test(stages_refused),
        cmocka_unit_test(mlp_simulated),      cmocka_unit_test(planners_refuse),
        cmocka_unit_test(huge_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
