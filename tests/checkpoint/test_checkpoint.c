/* test_checkpoint.c -- checkpoints: round trip, damage, foreign files, and a kill at every step of
 * writing one.
 *
 * For the last, a child process writes a checkpoint under ptrace and is killed at its n-th call
 * on a file, for n = 1, 2, ... until it completes. */
#include "checkpoint/saver.h"
#include "support/run_fixture.h"
#include <forerun/state.h>

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const char net[] = "model: {name: mlp, inputs: 12, depth: 2, width: 16, classes: 4}\n"
                          "data: {name: synthetic, n: 64, n_eval: 0}\n"
                          "train: {batch: 8, steps: 4, optimizer: {name: adam, lr: 0.01}}\n"
                          "parallel: {backend: ref, threads: 1}\n"
                          "run: {keep: 2}\n";

typedef struct bench {
    fixture *f;
    fr__setup s;
    fr_engine *e;
    fr__folder folder;
} bench;

static void bench_open(fixture *f, const char *set, bench *b)
{
    memset(b, 0, sizeof *b);
    b->f = f;
    write_text(f->config, net);
    fr_run_options o = {
        .size = sizeof o, .config = f->config, .n_sets = set != NULL, .sets = &set, .out = f->out};
    assert_done(f, fr__setup_open(f->ctx, &o, &b->s));
    assert_done(f, fr__setup_pipeline(&b->s));
    fr_engine_desc d = fr__setup_train_desc(&b->s, false, false);
    assert_done(f, fr_engine_create(f->ctx, &d, &b->e));
    assert_done(f, fr__folder_open(f->ctx, f->out, true, &b->folder));
}

static void bench_close(bench *b)
{
    fr_engine_free(b->e);
    fr__folder_close(&b->folder);
    fr__setup_close(&b->s);
}

/* Give every parameter and state values that depend on `mark`. */
static void paint(bench *b, float mark)
{
    float values[1024];
    for (int i = 0; i < fr_graph_n_params(b->s.graph); i++) {
        int64_t n = fr_shape_count(&fr_graph_param(b->s.graph, i)->shape);
        assert_true(n <= 1024);
        for (int k = -1; k < 2; k++) {
            for (int64_t j = 0; j < n; j++) values[j] = mark + (float)(100 * i + 10 * k) + (float)j;
            assert_done(b->f, k < 0 ? fr_engine_set_param(b->e, i, values)
                                    : fr_engine_set_state(b->e, k, i, values));
        }
    }
}

static void check_paint(bench *b, float mark)
{
    float values[1024];
    for (int i = 0; i < fr_graph_n_params(b->s.graph); i++) {
        int64_t n = fr_shape_count(&fr_graph_param(b->s.graph, i)->shape);
        for (int k = -1; k < 2; k++) {
            assert_done(b->f, k < 0 ? fr_engine_get_param(b->e, i, values)
                                    : fr_engine_get_state(b->e, k, i, values));
            for (int64_t j = 0; j < n; j++)
                assert_true(values[j] == mark + (float)(100 * i + 10 * k) + (float)j);
        }
    }
}

static fr_status save(bench *b, int64_t step)
{
    char path[FR_PATH], sha[65];
    fr__position p = {.step = step,
                      .samples = 8 * step,
                      .epoch_loss = 0.1 + (double)step,
                      .epoch_targets = 3,
                      .elapsed_s = 1.0 / 3};
    return fr__checkpoint_save(&b->s, b->e, &b->folder, &p, path, sha);
}

static void test_round_trip(void **state)
{
    fixture *f = *state;
    bench b;
    fr__position p;
    char path[FR_PATH], sha[65];
    bench_open(f, NULL, &b);
    assert_done(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path));
    assert_string_equal(path, "");
    paint(&b, 7);
    assert_done(f, save(&b, 3));
    assert_done(f, fr__weights_sha256(&b.s, b.e, sha));
    paint(&b, 9);
    assert_done(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path));
    check_paint(&b, 7);
    assert_true(p.step == 3 && p.samples == 24 && p.epoch_targets == 3);
    assert_true(p.epoch_loss == 3.1 && p.elapsed_s == 1.0 / 3); /* to the bit */
    char again[65];
    assert_done(f, fr__weights_sha256(&b.s, b.e, again));
    assert_string_equal(sha, again);
    bench_close(&b);
}

static void test_keeps_the_newest(void **state)
{
    fixture *f = *state;
    bench b;
    fr__steps steps;
    bench_open(f, NULL, &b);
    for (int i = 1; i <= 5; i++) assert_done(f, save(&b, i));
    assert_done(f, save(&b, 5)); /* in place of one that was there */
    assert_done(f, fr__folder_steps(f->ctx, b.folder.checkpoints, &steps));
    assert_int_equal(steps.n, 2);
    assert_int_equal(steps.at[0], 5);
    assert_int_equal(steps.at[1], 4);
    fr__vec_fini(&steps);
    bench_close(&b);
}

/* Weights that are not finite are not saved, and earlier checkpoints stay. */
static void test_spoilt_weights_are_not_saved(void **state)
{
    fixture *f = *state;
    bench b;
    fr__position p;
    char path[FR_PATH];
    bench_open(f, NULL, &b);
    paint(&b, 7);
    assert_done(f, save(&b, 1));
    paint(&b, NAN);
    assert_int_equal(save(&b, 2), FR_DIVERGED);
    fr_ctx_clear(f->ctx);
    assert_done(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path));
    assert_int_equal(p.step, 1);
    check_paint(&b, 7);
    bench_close(&b);
}

/* Change one bit of a file (at < 0: counted from its end), or cut it. */
static void spoil(const bench *b, const char *name, long at, bool cut)
{
    char path[FR_PATH];
    snprintf(path, sizeof path, "%s/checkpoint/%s", b->f->out, name);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    if (cut) {
        assert_int_equal(ftruncate(fileno(file), at), 0);
    } else {
        fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
        int c = fgetc(file);
        fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
        fputc(c ^ 1, file);
    }
    assert_int_equal(fclose(file), 0);
}

static void test_damage_falls_back(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *file;
        long at;
        bool cut;
    } cases[] = {{"step-2/model.safetensors", -1, false}, /* a flipped bit in a weight */
                 {"step-2/model.safetensors", 65, false}, /* in a name of the header */
                 {"step-2/optimizer.safetensors", -1, false},
                 {"step-2/optimizer.safetensors", 65, false},
                 {"step-2/model.safetensors", 700, true},
                 {"step-2/model.safetensors", 3, true},
                 {"step-2/optimizer.safetensors", 700, true},
                 {"step-2/state.json", 40, true},
                 {"step-2/state.json", 0, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench b;
        fr__position p;
        char path[FR_PATH];
        snprintf(f->out, sizeof f->out, "%s/run%zu", f->dir, i);
        bench_open(f, NULL, &b);
        paint(&b, 1);
        assert_done(f, save(&b, 1));
        paint(&b, 2);
        assert_done(f, save(&b, 2));
        spoil(&b, cases[i].file, cases[i].at, cases[i].cut);
        f->log[0] = '\0';
        assert_done(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path));
        assert_int_equal(p.step, 1);
        check_paint(&b, 1);
        assert_non_null(strstr(f->log, cases[i].file));
        /* For evaluation the optimizer's file does not matter. */
        bool is_needed = !strstr(cases[i].file, "optimizer");
        assert_done(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, NULL, path));
        assert_non_null(strstr(path, is_needed ? "step-1" : "step-2"));
        spoil(&b, "step-1/state.json", 0, true); /* now there is nothing left */
        assert_failed(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path),
                      FR_INVALID, "step-1/state.json");
        bench_close(&b);
    }
}

static void test_strangers_are_refused(void **state)
{
    fixture *f = *state;
    bench b;
    bench_open(f, NULL, &b);
    assert_done(f, save(&b, 1));
    bench_close(&b);
    static const struct {
        const char *set, *words[3];
    } cases[] = {
        {"model.width=8", {"model.safetensors", "(16, 12)", "(8, 12)"}},
        {"model.depth=3", {"model.safetensors", "mlp", "another config"}},
        {"train.optimizer.name=sgd", {"optimizer", "'adam'", "'sgd'"}},
        {"train.seed=5", {"train.seed", "1", "5"}},
        {"train.batch=16", {"train.batch", "8", "16"}},
        {"data.n=128", {"training samples", "64", "128"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr__position p;
        char path[FR_PATH];
        bench_open(f, cases[i].set, &b);
        assert_failed(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path),
                      FR_INVALID, cases[i].words[0], cases[i].words[1], cases[i].words[2]);
        bench_close(&b);
    }
}

/* Every changed bit of state.json is detected, whether the file is still JSON or not. */
static void test_every_bit_of_the_state(void **state)
{
    fixture *f = *state;
    bench b;
    fr__position p;
    char path[FR_PATH], file[FR_PATH];
    size_t bytes;
    bool is_damaged;
    bench_open(f, NULL, &b);
    assert_done(f, save(&b, 2));
    snprintf(path, sizeof path, "%s/checkpoint/step-2", f->out);
    snprintf(file, sizeof file, "%s/checkpoint/step-2/state.json", f->out);
    char *text = read_text(file, &bytes);
    for (size_t i = 0; i < 8 * bytes; i++) {
        FILE *to = fopen(file, "w");
        assert_non_null(to);
        text[i / 8] = (char)(text[i / 8] ^ 1 << i % 8);
        assert_int_equal(fwrite(text, 1, bytes, to), bytes);
        text[i / 8] = (char)(text[i / 8] ^ 1 << i % 8);
        assert_int_equal(fclose(to), 0);
        assert_true(fr__checkpoint_load(&b.s, b.e, path, &p, &is_damaged) != FR_OK);
        assert_true(is_damaged);
        fr_ctx_clear(f->ctx);
    }
    free(text);
    bench_close(&b);
}

/* A checkpoint of an earlier version has no hashes per file: its weights are checked by their
 * SHA-256. */
static void test_format_1(void **state)
{
    fixture *f = *state;
    bench b;
    fr__position p;
    char path[FR_PATH];
    bench_open(f, NULL, &b);
    paint(&b, 5);
    assert_done(f, save(&b, 2));
    snprintf(path, sizeof path, "%s/checkpoint/step-2/state.json", f->out);
    char *text = read_text(path, NULL);
    char *format = strstr(text, "\"format\": 2"), *end = strstr(text, ",\n  \"xxh128\"");
    assert_true(format && end);
    format[strlen("\"format\": ")] = '1';
    strcpy(end, "\n}\n");
    write_text(path, text);
    paint(&b, 6);
    assert_done(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path));
    check_paint(&b, 5);
    spoil(&b, "step-2/model.safetensors", -1, false);
    assert_failed(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path),
                  FR_INVALID, "step-2/model.safetensors", "sha256");
    free(text);
    bench_close(&b);
}

/* A damaged checkpoint does not count, and is not taken for a newer one. */
static void test_damaged_ones_do_not_count(void **state)
{
    fixture *f = *state;
    bench b;
    fr__position p;
    char path[FR_PATH];
    fr__steps steps;
    bench_open(f, "run.keep=1", &b);
    assert_done(f, save(&b, 9));
    spoil(&b, "step-9/optimizer.safetensors", -1, false);
    assert_done(f, save(&b, 3)); /* the run was resumed from an older one */
    assert_done(f, save(&b, 4));
    assert_done(f, fr__folder_steps(f->ctx, b.folder.checkpoints, &steps));
    assert_int_equal(steps.n, 2);
    assert_int_equal(steps.at[1], 4);
    fr__vec_fini(&steps);
    assert_done(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path));
    assert_int_equal(p.step, 4);
    snprintf(path, sizeof path, "%s/checkpoint/step-9/model.safetensors", f->out);
    assert_int_equal(unlink(path), 0);
    assert_done(f, save(&b, 9)); /* and is replaced when the run reaches that step */
    assert_done(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path));
    assert_int_equal(p.step, 9);
    bench_close(&b);
}

/* Neither a weight nor a state of the optimizer. */
static void test_infinite_state_is_not_saved(void **state)
{
    fixture *f = *state;
    bench b;
    float values[1024] = {0};
    bench_open(f, NULL, &b);
    values[3] = INFINITY;
    assert_done(f, fr_engine_set_state(b.e, 1, 0, values));
    assert_failed(f, save(&b, 1), FR_DIVERGED, "optimizer's state", "fc.0.weight");
    bench_close(&b);
}

/* Called on the writing thread, where a failed assertion would not be seen. */
typedef struct sync_log {
    const char *checkpoint; /* that is being written */
    int n_calls, n_visible; /* n_visible: calls that found it in place */
    fr_status result;
} sync_log;

static fr_status sync_first(void *user, fr_ctx *ctx)
{
    sync_log *l = user;
    l->n_calls++;
    l->n_visible += access(l->checkpoint, F_OK) == 0;
    return l->result == FR_OK ? FR_OK : fr_fail(ctx, l->result, "the lines cannot be synced");
}

/* A checkpoint becomes visible only after the files that belong to it are on the disk. */
static void test_syncs_before_it_is_visible(void **state)
{
    fixture *f = *state;
    bench b;
    fr__saver v;
    fr__steps steps;
    char path[FR_PATH];
    sync_log l = {.checkpoint = path};
    bench_open(f, NULL, &b);
    assert_done(f, fr__saver_open(&b.s, b.e, &b.folder, sync_first, &l, &v));
    assert_done(f, fr__path(f->ctx, path, "%s/step-4", b.folder.checkpoints));
    assert_done(f, fr__saver_begin(&v, &(fr__position){.step = 4}));
    assert_done(f, fr__saver_wait(&v));
    assert_true(l.n_calls == 1 && l.n_visible == 0);
    assert_int_equal(access(path, F_OK), 0);
    l.result = FR_IO;
    assert_done(f, fr__path(f->ctx, path, "%s/step-8", b.folder.checkpoints));
    assert_done(f, fr__saver_begin(&v, &(fr__position){.step = 8}));
    assert_failed(f, fr__saver_wait(&v), FR_IO, "the lines cannot be synced");
    assert_done(f, fr__folder_steps(f->ctx, b.folder.checkpoints, &steps));
    assert_true(l.n_calls == 2 && steps.n == 1 && steps.at[0] == 4);
    fr__vec_fini(&steps);
    fr__saver_close(&v);
    bench_close(&b);
}

/* A checkpoint saved without an engine equals the starting state of an engine. */
static void test_start(void **state)
{
    fixture *f = *state;
    bench b;
    fr__position p = {0};
    char path[FR_PATH], start[65], sha[65];
    bench_open(f, NULL, &b);
    assert_done(f, fr__weights_sha256(&b.s, b.e, sha));
    paint(&b, 8);
    assert_done(f, fr__checkpoint_save(&b.s, NULL, &b.folder, &p, path, start));
    assert_string_equal(start, sha);
    assert_done(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path));
    assert_done(f, fr__weights_sha256(&b.s, b.e, sha));
    assert_string_equal(start, sha);
    float values[1024];
    for (int i = 0; i < fr_graph_n_params(b.s.graph); i++)
        for (int k = 0; k < 2; k++) {
            assert_done(f, fr_engine_get_state(b.e, k, i, values));
            for (int64_t j = 0; j < fr_shape_count(&fr_graph_param(b.s.graph, i)->shape); j++)
                assert_true(values[j] == 0);
        }
    bench_close(&b);
}

/* --- death --------------------------------------------------------------------------------- */

static bool touches_files(uint64_t call)
{
    static const long calls[] = {
        SYS_write,   SYS_openat,   SYS_close,     SYS_fsync,     SYS_fdatasync,
        SYS_mkdirat, SYS_unlinkat, SYS_renameat2, SYS_ftruncate, SYS_pwrite64,
#ifdef SYS_rename /* the older system calls, if the machine has them */
        SYS_rename,  SYS_mkdir,    SYS_unlink,    SYS_rmdir,     SYS_open,
#endif
        SYS_renameat};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (call == (uint64_t)calls[i]) return true;
    return false;
}

/* Trace a stopped child and kill it when it enters its n-th call; true if it completed. */
static bool follow(pid_t child, int n)
{
    int status, count = 0;
    for (;;) {
        struct __ptrace_syscall_info info = {0};
        assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            return true;
        }
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
        assert_true(ptrace(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info) > 0);
        if (info.op != PTRACE_SYSCALL_INFO_ENTRY || !touches_files(info.entry.nr)) continue;
        if (++count < n) continue;
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        return false;
    }
}

/* Save step 3 in a child that dies at its n-th file call. -1: ptrace is not allowed here. */
static int save_and_die(bench *b, int n)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(99);
        raise(SIGSTOP);
        _exit(save(b, 3) == FR_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) return -1;
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)options), 0);
    return follow(child, n);
}

static void check_survivors(bench *b, bool is_through)
{
    fr__position p;
    char path[FR_PATH];
    paint(b, 0);
    b->f->log[0] = '\0';
    assert_done(b->f, fr__checkpoint_load_newest(&b->s, b->e, b->folder.checkpoints, &p, path));
    assert_string_equal(b->f->log, ""); /* nothing was damaged */
    assert_true(p.step == 3 || (p.step == 2 && !is_through));
    check_paint(b, (float)p.step);
}

static void test_killed_at_every_call(void **state)
{
    fixture *f = *state;
    int n = 1, n_old = 0, n_new = 0;
    for (bool is_through = false; !is_through; n++) {
        bench b;
        fr__steps steps;
        snprintf(f->out, sizeof f->out, "%s/run%d", f->dir, n);
        bench_open(f, NULL, &b);
        for (int step = 1; step <= 3; step++) {
            paint(&b, (float)step);
            if (step < 3) assert_done(f, save(&b, step));
        }
        int result = save_and_die(&b, n);
        if (result < 0) {
            bench_close(&b);
            skip_because("a process killed at each of its calls", "ptrace is not allowed");
        }
        is_through = result;
        check_survivors(&b, is_through);
        /* The next run removes leftovers, saves, and has exactly the expected files. */
        bench_close(&b);
        bench_open(f, NULL, &b);
        fr__position p;
        char path[FR_PATH];
        assert_done(f, fr__checkpoint_load_newest(&b.s, b.e, b.folder.checkpoints, &p, path));
        *(p.step == 2 ? &n_old : &n_new) += 1;
        paint(&b, 3);
        assert_done(f, save(&b, 3));
        check_survivors(&b, true);
        assert_done(f, fr__folder_steps(f->ctx, b.folder.checkpoints, &steps));
        assert_int_equal(steps.n, 2);
        fr__vec_fini(&steps);
        bench_close(&b);
    }
    print_message("killed at %d calls: %d times the old checkpoint was the newest, %d the new\n",
                  n - 2, n_old, n_new);
    assert_true(n_old > 10 && n_new > 3); /* the child was killed on both sides of the rename */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_keeps_the_newest, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_spoilt_weights_are_not_saved, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_damage_falls_back, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_strangers_are_refused, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_every_bit_of_the_state, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_format_1, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_ones_do_not_count, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_infinite_state_is_not_saved, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_syncs_before_it_is_visible, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_start, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_killed_at_every_call, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
