/* test_check.c -- valid schedules pass. Each mutation of one instruction is refused, or the oracle
 * also accepts it. */
#include "base/alloc.h"
#include "sched/common.h"
#include "sched/oracle.h"

/* --- the schedules ------------------------------------------------------------------------- */

typedef struct spec {
    const char *name;
    int stages, chunks, micro, batches;
    bool must_reduce, has_skips;
    const int *replicas;
} spec;

/* The last stage also reads stage 0, and stage 3 reads stage 1; gradients flow back. */
static fr_schedule *make_spec(const spec *p)
{
    fr_link forward[80], backward[80];
    int n = 0;
    for (int k = 0; k + 1 < p->stages; k++) forward[n++] = (fr_link){k, k + 1};
    if (p->has_skips && p->stages > 2) forward[n++] = (fr_link){0, p->stages - 1};
    if (p->has_skips && p->stages > 4) forward[n++] = (fr_link){1, 3};
    for (int i = 0; i < n; i++) backward[i] = (fr_link){forward[i].to, forward[i].from};
    fr_schedule_desc d = {.n_stages = p->stages,
                          .chunks = p->chunks,
                          .n_micro = p->micro,
                          .n_batches = p->batches,
                          .must_reduce = p->must_reduce,
                          .replicas = p->replicas,
                          .n_forward = n,
                          .n_backward = n,
                          .forward = forward,
                          .backward = backward};
    return make_desc(p->name, d);
}

/* Call `each` with the schedules of every generator over a range of sizes; those without a flush
 * have `batches` mini-batches. */
static int for_all(int max_stages, int max_micro, int batches, void (*each)(fr_schedule *s))
{
    int n = 0;
    for (const fr_generator *const *g = fr_generator_list(); *g; g++)
        for (int p = 1; p <= max_stages; p++)
            for (int v = 1; v <= 3; v++)
                for (int m = 1; takes_chunks(*g, v) && m <= max_micro; m++)
                    for (int variant = 0; variant < 4; variant++) {
                        bool is_long = !(*g)->is_flush;
                        spec it = {(*g)->name,  p * v,        v,   m, is_long ? batches : 1,
                                   variant & 1, variant >> 1, NULL};
                        fr_schedule_desc d = {.n_stages = p * v, .chunks = v, .n_micro = m};
                        if ((*g)->check && (*g)->check(&d)) continue;
                        fr_schedule *s = make_spec(&it);
                        each(s);
                        fr_schedule_free(s);
                        n++;
                    }
    return n;
}

static void passes(fr_schedule *s)
{
    assert_ok(ctx, fr_schedule_check(ctx, s));
    for (unsigned seed = 1; seed <= 3; seed++) assert_true(oracle_runs(s, seed));
}

static void all_generators_pass(void **state)
{
    (void)state;
    assert_true(for_all(6, 7, 3, passes) > 1000);
}

/* --- mutations ----------------------------------------------------------------------------- */

static int n_refused, n_accepted;

/* Check the schedule. must_fail: it cannot be valid. */
static void judge(const fr_schedule *s, bool must_fail, const char *what, int w, int i)
{
    fr_status status = fr_schedule_check(ctx, s);
    char text[1024];
    snprintf(text, sizeof text, "%s", fr_ctx_error(ctx));
    fr_ctx_clear(ctx);
    bool is_fine = oracle_runs(s, (unsigned)(7 * w + i + 1));
    if (status == FR_OK ? !is_fine || must_fail : is_fine)
        fail_msg("%s, %d stages, %d micro: %s at worker %d, step %d: check says '%s', the oracle "
                 "says %s",
                 s->name, s->n_stages, s->n_micro, what, w, i, status == FR_OK ? "valid" : text,
                 is_fine ? "valid" : "broken");
    if (status == FR_OK) {
        n_accepted++;
        return;
    }
    assert_int_equal(status, FR_INVALID);
    if (!strstr(text, "worker ") || !strstr(text, "step ")) fail_msg("%s: '%s'", what, text);
    n_refused++;
}

/* Replace the worker's list during one check. */
static void judge_list(fr_schedule *s, int w, int i, int n, fr_instr *list, bool must_fail,
                       const char *what)
{
    fr_instr_list keep = s->lists[w];
    s->lists[w] = (fr_instr_list){n, list};
    judge(s, must_fail, what, w, i);
    s->lists[w] = keep;
}

static void change_fields(fr_schedule *s, int w, int i)
{
    fr_instr *x = &s->lists[w].at[i], keep = *x;
    const int all = s->n_micro * s->n_batches;
    const int micros[] = {keep.micro - 1, keep.micro + 1, 0, all - 1, -1, all, 1 << 30};
    const int stages[] = {keep.stage - 1, keep.stage + 1, 0, s->n_stages - 1, s->n_stages, -1};
    for (size_t k = 0; k < sizeof micros / sizeof *micros; k++, *x = keep)
        if (micros[k] != keep.micro)
            x->micro = micros[k], judge(s, true, "another micro-batch", w, i);
    for (size_t k = 0; k < sizeof stages / sizeof *stages; k++, *x = keep)
        if (stages[k] != keep.stage) x->stage = stages[k], judge(s, true, "another stage", w, i);
    for (int peer = -2; peer <= s->n_stages; peer++, *x = keep)
        if (peer != keep.peer) x->peer = peer, judge(s, true, "another peer", w, i);
    for (int action = 0; action <= FR_N_ACTIONS; action++, *x = keep)
        if (action != keep.action)
            x->action = (uint8_t)action, judge(s, true, "another action", w, i);
}

static void change_order(fr_schedule *s, int w, int i, fr_instr *list)
{
    const fr_instr_list *l = &s->lists[w];
    size_t item = sizeof *list, n = (size_t)l->n, at = (size_t)i;
    memcpy(list, l->at, at * item); /* delete */
    memcpy(list + at, l->at + at + 1, (n - at - 1) * item);
    /* Without its only REDUCE it is a schedule that reduces nothing. */
    bool is_needed = l->at[at].action != FR_DO_REDUCE || s->n_stages * s->n_batches > 1;
    judge_list(s, w, i, l->n - 1, list, is_needed, "deleted");
    for (size_t to = 0; to < n; to++) { /* move to each other place */
        if (to == at || (to > at + 3 && (to + at) % 5)) continue;
        memcpy(list, l->at, n * item);
        if (to > at)
            memmove(list + at, list + at + 1, (to - at) * item);
        else
            memmove(list + to + 1, list + to, (at - to) * item);
        list[to] = l->at[at];
        judge_list(s, w, i, l->n, list, false, "moved");
    }
    for (int to = i; to < l->n; to += 1 + l->n / 4) { /* a copy behind, near and far */
        memcpy(list, l->at, (size_t)(to + 1) * item);
        list[to + 1] = l->at[at];
        memcpy(list + to + 2, l->at + to + 1, (n - (size_t)to - 1) * item);
        judge_list(s, w, i, l->n + 1, list, true, "duplicated");
    }
}

/* Swap two transfers of one link. */
static void swap_transfers(fr_schedule *s, int w, int i, fr_instr *list)
{
    const fr_instr_list *l = &s->lists[w];
    const fr_instr *x = &l->at[i];
    if (x->action < FR_DO_SEND_F || x->action > FR_DO_RECV_B) return;
    for (int k = i + 1; k < l->n; k++) {
        if (l->at[k].action != x->action || l->at[k].stage != x->stage || l->at[k].peer != x->peer)
            continue;
        memcpy(list, l->at, (size_t)l->n * sizeof *list);
        list[i] = l->at[k], list[k] = *x;
        judge_list(s, w, i, l->n, list, true, "two transfers of a link swapped");
    }
}

static void step_too_early(fr_schedule *s, int w, int i, fr_instr *list)
{
    const fr_instr_list *l = &s->lists[w];
    if (l->at[i].action != FR_DO_STEP) return;
    int last = i - 1;
    while (l->at[last].stage != l->at[i].stage ||
           (l->at[last].action != FR_DO_B && l->at[last].action != FR_DO_W))
        last--;
    memcpy(list, l->at, (size_t)l->n * sizeof *list);
    memmove(list + last + 1, list + last, (size_t)(i - last) * sizeof *list);
    list[last] = l->at[i];
    judge_list(s, w, i, l->n, list, true, "step before the last gradient");
}

static void change_tables(fr_schedule *s)
{
    int all = s->n_micro * s->n_batches;
    for (int k = 0; k < s->n_stages * all; k++) {
        int *slot = &s->slot_of[k], keep = *slot, n = s->n_slots[k / all];
        for (int to = -1; to <= n; to++) {
            *slot = to;
            if (to != keep) judge(s, to < 0 || to == n, "another slot", k / all, k % all);
        }
        *slot = keep;
    }
    for (int k = 0; k < s->n_backward * all; k++) {
        int *buffer = &s->buffer_of[k], keep = *buffer, n = s->n_buffers[k / all];
        for (int to = -1; to <= n; to++) {
            *buffer = to;
            if (to != keep) judge(s, to < 0 || to == n, "another buffer", k / all, k % all);
        }
        *buffer = keep;
    }
    for (int k = 0; k < s->n_stages; k++) {
        s->n_slots[k]--;
        judge(s, true, "one slot fewer", k, 0);
        s->n_slots[k]++;
    }
}

static void mutate(fr_schedule *s)
{
    for (int w = 0; w < s->n_workers; w++) {
        fr_instr *list = malloc((size_t)(s->lists[w].n + 2) * sizeof *list);
        for (int i = 0; i < s->lists[w].n; i++) {
            change_fields(s, w, i);
            change_order(s, w, i, list);
            swap_transfers(s, w, i, list);
            step_too_early(s, w, i, list);
        }
        free(list);
    }
    change_tables(s);
    passes(s); /* everything is as it was */
}

static void mutations_are_refused(void **state)
{
    (void)state;
    n_refused = n_accepted = 0;
    int n = for_all(3, 2, 2, mutate);
    print_message("%d schedules: %d mutations refused, %d valid for the oracle too\n", n, n_refused,
                  n_accepted);
    assert_true(n_refused > 100000 && n_accepted > 1000);
}

static void larger_mutations(void **state)
{
    (void)state;
    const spec specs[] = {{"1f1b", 4, 1, 6, 1, false, false, NULL},
                          {"zb-h1", 4, 1, 5, 1, true, true, NULL},
                          {"interleaved", 4, 2, 4, 1, true, true, NULL},
                          {"1f1b-async", 4, 1, 2, 4, true, false, NULL}};
    n_refused = n_accepted = 0;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        fr_schedule *s = make_spec(&specs[i]);
        mutate(s);
        fr_schedule_free(s);
    }
    assert_true(n_refused > 10000);
}

static void mutations_with_replicas(void **state)
{
    (void)state;
    const int two[] = {2, 2, 2, 2}, wide[] = {3, 1}, narrow[] = {1, 3}, both[] = {3, 2},
              middle[] = {1, 2, 1}, ends[] = {2, 1, 2}, one_of_two[] = {2, 1, 2, 1};
    const spec specs[] = {{"1f1b", 2, 1, 6, 1, false, false, wide},
                          {"1f1b", 2, 1, 6, 1, false, false, narrow},
                          {"gpipe", 2, 1, 6, 1, false, false, both},
                          {"1f1b-async", 2, 1, 6, 2, false, false, both},
                          {"1f1b-async", 3, 1, 2, 3, false, true, middle},
                          {"1f1b", 3, 1, 4, 1, true, true, ends},
                          {"zb-h1", 2, 1, 6, 1, false, false, two},
                          {"nf1b", 2, 1, 4, 2, false, false, two},
                          {"interleaved", 4, 2, 4, 1, false, true, two},
                          {"sequential", 4, 2, 4, 1, false, true, one_of_two},
                          {"forward", 4, 2, 4, 2, false, true, one_of_two},
                          {"forward", 2, 1, 6, 2, false, false, both}};
    n_refused = n_accepted = 0;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        fr_schedule *s = make_spec(&specs[i]);
        mutate(s);
        fr_schedule_free(s);
    }
    print_message("replicas: %d mutations refused, %d valid for the oracle too\n", n_refused,
                  n_accepted);
    assert_true(n_refused > 10000 && n_accepted > 500);
}

/* --- texts --------------------------------------------------------------------------------- */

static void says(fr_schedule *s, const char *text)
{
    assert_int_equal(fr_schedule_check(ctx, s), FR_INVALID);
    if (!strstr(fr_ctx_error(ctx), text))
        fail_msg("'%s' expected in '%s'", text, fr_ctx_error(ctx));
    fr_ctx_clear(ctx);
    fr_schedule_free(s);
}

static void remove_at(fr_schedule *s, int w, int i)
{
    fr_instr_list *l = &s->lists[w];
    memmove(l->at + i, l->at + i + 1, (size_t)(l->n - i - 1) * sizeof *l->at);
    l->n--;
}

static void counter_examples(void **state)
{
    (void)state;
    fr_schedule *s = make("1f1b", 4, 1, 6, 1);
    int i = place_of(s, FR_DO_SEND_B, 3, 5, 2), j = place_of(s, FR_DO_RECV_B, 2, 5, 3);
    int b = place_of(s, FR_DO_B, 2, 5, -1);
    char text[128];
    remove_at(s, 3, i);
    remove_at(s, 2, j);
    snprintf(text, sizeof text,
             "worker 2, step %d (2B5): its gradient from stage 3 (3B5 on worker 3) is never sent",
             b - 1);
    says(s, text);

    s = make("gpipe", 2, 1, 2, 1);
    remove_at(s, 0, place_of(s, FR_DO_STEP, 0, 0, -1));
    says(s, "worker 0, step 8 (end of the list): 0STEP0 never comes");

    s = make("gpipe", 2, 1, 2, 1);
    s->lists[0].at[0].stage = 1;
    says(s, "worker 0, step 0 (1F0): stage 1 belongs to worker 1");

    s = make("1f1b", 2, 1, 2, 1); /* both wait: one for values, one for gradients */
    i = place_of(s, FR_DO_SEND_F, 0, 1, 1), j = place_of(s, FR_DO_B, 0, 0, -1);
    fr_instr send = s->lists[0].at[i];
    memmove(&s->lists[0].at[i], &s->lists[0].at[i + 1], (size_t)(j - i) * sizeof send);
    s->lists[0].at[j] = send;
    i = place_of(s, FR_DO_RECV_F, 1, 1, 0);
    fr_instr recv = s->lists[1].at[i];
    memmove(&s->lists[1].at[1], &s->lists[1].at[0], (size_t)i * sizeof recv);
    s->lists[1].at[0] = recv;
    says(s, "worker 1, step 1 (1RECV_F0): comes after 1RECV_F1, but worker 0 sends it before that");
}

static void deadlocks_are_told(void **state)
{
    (void)state;
    fr_schedule *s = make("1f1b", 2, 1, 4, 1);
    for (int m = 0; m < 4; m++) s->slot_of[m] = 0; /* stage 0 runs two ahead */
    says(s, "deadlock: worker 0 waits at step");
    s = make("1f1b", 2, 1, 2, 1);
    /* Worker 1 defers its first gradient until after the second micro-batch, which worker 0 sends
     * only after that gradient. */
    int send = place_of(s, FR_DO_SEND_F, 0, 1, 1), b = place_of(s, FR_DO_B, 0, 0, -1);
    fr_instr keep = s->lists[0].at[send];
    memmove(&s->lists[0].at[send], &s->lists[0].at[send + 1], (size_t)(b - send) * sizeof keep);
    s->lists[0].at[b] = keep;
    int back = place_of(s, FR_DO_SEND_B, 1, 0, 0), recv = place_of(s, FR_DO_RECV_F, 1, 1, 0);
    if (recv > back) {
        keep = s->lists[1].at[recv];
        memmove(&s->lists[1].at[back + 1], &s->lists[1].at[back],
                (size_t)(recv - back) * sizeof keep);
        s->lists[1].at[back] = keep;
    }
    assert_int_equal(fr_schedule_check(ctx, s), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(ctx), "(1RECV_F1) for 0SEND_F1 on worker 0"));
    assert_non_null(strstr(fr_ctx_error(ctx), "(0RECV_B0) for 1SEND_B0 on worker 1"));
    fr_ctx_clear(ctx);
    fr_schedule_free(s);
}

static void shapes_are_refused(void **state)
{
    (void)state;
    fr_schedule *s = make("1f1b", 2, 1, 2, 1);
    s->n_micro = 0;
    says(s, "at least one of each");
    s = make("1f1b", 2, 1, 2, 1);
    s->n_micro = s->n_batches = 1 << 20;
    says(s, "too many");
    s = make("1f1b", 2, 1, 2, 1);
    s->n_micro = 1 << 28;
    says(s, "need more");
    s = make("1f1b", 2, 1, 2, 1);
    s->is_lowered = false;
    says(s, "not lowered");
    s = make("1f1b", 2, 1, 2, 1);
    s->worker_of[1] = 2;
    says(s, "stage 1 is on worker 2");
    s = make("1f1b", 2, 1, 2, 1);
    s->forward[0] = (fr_link){1, 0};
    says(s, "forward link 1 > 0");
    s = make("1f1b", 3, 1, 2, 1);
    s->backward[0] = s->backward[1];
    says(s, "duplicate backward link");
    s = make("1f1b", 2, 1, 2, 1);
    s->worker_of[0] = 1;
    says(s, "worker 0 of 2 has no stage");
    s = make("zb-h1", 2, 1, 2, 1);
    s->is_split = false;
    says(s, "not split");
    s = make("1f1b-async", 2, 1, 2, 2); /* runs ahead over mini-batches */
    s->is_flush = true;
    says(s, "the schedule flushes");
    s = make("forward", 2, 1, 2, 1);
    s->is_forward_only = false;
    says(s, "never comes");
}

/* --- random schedules, speed, memory ------------------------------------------------------- */

static void large_ones_pass(void **state)
{
    (void)state;
    int many[64];
    for (int k = 0; k < 64; k++) many[k] = 1 << k % 11; /* up to one worker per micro-batch */
    const spec specs[] = {{"gpipe", 64, 1, 1024, 1, false, false, NULL},
                          {"1f1b", 64, 1, 1024, 1, true, false, NULL},
                          {"zb-h1", 64, 1, 1024, 1, false, true, NULL},
                          {"interleaved", 64, 8, 1024, 1, true, false, NULL},
                          {"1f1b-async", 8, 1, 4, 1024, true, true, NULL},
                          {"1f1b", 64, 1, 1024, 1, true, true, many}};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        fr_schedule *s = make_spec(&specs[i]);
        assert_ok(ctx, fr_schedule_check(ctx, s));
        fr_schedule_free(s);
    }
}

static void memory_runs_out(void **state)
{
    (void)state;
    fr_schedule *s = make("interleaved", 4, 2, 4, 1);
    fr_status status = FR_NO_MEMORY;
    for (int n = 0; status != FR_OK; n++) {
        fr__alloc_fail_after(n);
        status = fr_schedule_check(ctx, s);
        fr__alloc_fail_after(-1);
        assert_true(status == FR_OK || status == FR_NO_MEMORY);
        fr_ctx_clear(ctx);
        assert_true(n < 100);
    }
    fr_schedule_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_generators_pass), cmocka_unit_test(mutations_are_refused),
        cmocka_unit_test(larger_mutations),    cmocka_unit_test(mutations_with_replicas),
        cmocka_unit_test(counter_examples),    cmocka_unit_test(deadlocks_are_told),
        cmocka_unit_test(shapes_are_refused),  cmocka_unit_test(large_ones_pass),
        cmocka_unit_test(memory_runs_out),
    };
    ctx = fr_ctx_create();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fr_ctx_free(ctx);
    return failed;
}
