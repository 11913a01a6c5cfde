/* test_jitter.c -- lowered schedules with random durations never deadlock, and never use data
 * before they arrive or after they are overwritten.
 *
 * Workers run one small step at a time (begin or end of an instruction) in random order, which
 * covers all possible durations. They use the information of the engine: their list, messages in
 * channels, users of slots and buffers. They do not use the clock. Flush schedules run several
 * times; longer segments may be cut short. */
#include "sched/random.h"

enum { MOST_STAGES = 32, MOST_MICRO = 512, MOST_LINKS = 128, MOST_REPLICAS = 3, PAIRS = 6 };

/* One link: per pair of replicas, messages in the order of sending; gradients also have buffers.
 * The micro-batch modulo 6 identifies a pair, for up to three replicas at either end. */
typedef struct channel {
    int sent[PAIRS][MOST_MICRO], n_sent[PAIRS], n_received[PAIRS];
    bool is_here[MOST_MICRO];
    int user[PAIRS][MOST_MICRO]; /* [buffer]: micro-batch + 1 */
} channel;

typedef struct world {
    const fr_schedule *s;
    int n_walks, cut;                       /* mini-batches from cut on are omitted */
    int walk[MOST_STAGES], at[MOST_STAGES]; /* [worker] */
    bool is_inside[MOST_STAGES];            /* [worker]: begun, not ended */
    bool has_values[MOST_STAGES][MOST_MICRO], has_gradients[MOST_STAGES][MOST_MICRO];
    /* [stage][replica][slot]: micro-batch + 1, and stages that still need it */
    int slot_user[MOST_STAGES][MOST_REPLICAS][MOST_MICRO];
    int slot_uses[MOST_STAGES][MOST_REPLICAS][MOST_MICRO];
    int n_reduces[MOST_MICRO]; /* [mini-batch], per stage if necessary: of one walk */
    int n_reduced[MOST_MICRO]; /* [mini-batch], over all walks */
    channel up[MOST_LINKS], down[MOST_LINKS]; /* last member: the part in use is reset */
} world;

static int find(int n, const fr_link *links, int from, int to)
{
    int l = fr_schedule_find_link(n, links, from, to);
    assert_true(l >= 0);
    return l;
}

static int *slot_user(world *o, int stage, int micro)
{
    int replica = micro % o->s->replicas[stage];
    return &o->slot_user[stage][replica][fr_schedule_slot(o->s, stage, micro)];
}
static int *slot_uses(world *o, int stage, int micro)
{
    int replica = micro % o->s->replicas[stage];
    return &o->slot_uses[stage][replica][fr_schedule_slot(o->s, stage, micro)];
}

/* Pairs of workers that exchange messages over the link, identified by a number below 6. */
static int pair_of(const fr_schedule *s, fr_link l, int micro)
{
    int a = s->replicas[l.from], b = s->replicas[l.to];
    return a == b ? micro % a : a == 1 ? micro % b : b == 1 ? micro % a : micro % PAIRS;
}
static int *buffer_user(world *o, int link, int micro)
{
    int pair = pair_of(o->s, o->s->backward[link], micro);
    return &o->down[link].user[pair][fr_schedule_buffer(o->s, link, micro)];
}

static bool is_left_out(const world *o, const fr_instr *i)
{
    bool is_of_batch = i->action == FR_DO_STEP || i->action == FR_DO_REDUCE;
    return (is_of_batch ? i->micro : i->micro / o->s->n_micro) >= o->cut;
}

static channel *channel_of(world *o, const fr_instr *i)
{
    const fr_schedule *s = o->s;
    switch (i->action) {
    case FR_DO_SEND_F: return &o->up[find(s->n_forward, s->forward, i->stage, i->peer)];
    case FR_DO_RECV_F: return &o->up[find(s->n_forward, s->forward, i->peer, i->stage)];
    case FR_DO_SEND_B: return &o->down[find(s->n_backward, s->backward, i->stage, i->peer)];
    default: return &o->down[find(s->n_backward, s->backward, i->peer, i->stage)];
    }
}

/* With a flush all stages step together, else each steps when its own replicas have submitted. */
static int reduction_of(const fr_schedule *s, const fr_instr *i)
{
    return s->is_flush ? i->micro : i->stage * s->n_batches + i->micro;
}

/* Would a worker of the engine wait here? */
static bool must_wait(world *o, int w, const fr_instr *i)
{
    const fr_schedule *s = o->s;
    bool is_back = i->action == FR_DO_B || i->action == FR_DO_I;
    if (i->action == FR_DO_F) return *slot_uses(o, i->stage, i->micro);
    for (int l = 0; is_back && l < s->n_backward; l++)
        if (s->backward[l].from == i->stage && *buffer_user(o, l, i->micro)) return true;
    if (i->action == FR_DO_RECV_F || i->action == FR_DO_RECV_B) {
        channel *p = channel_of(o, i);
        int pair = pair_of(s, (fr_link){i->peer, i->stage}, i->micro);
        return p->n_received[pair] == p->n_sent[pair];
    }
    int moment = reduction_of(s, i);
    return i->action == FR_DO_STEP &&
           o->n_reduced[moment] < o->n_reduces[moment] * (o->walk[w] + 1);
}

/* The inputs of a computation are available: from the same worker, or received. */
static void need_inputs(world *o, const fr_instr *i, int n, const fr_link *links, channel *channels,
                        bool (*made)[MOST_MICRO])
{
    for (int l = 0; l < n; l++) {
        if (links[l].to != i->stage) continue;
        if (fr_schedule_worker(o->s, links[l].from, i->micro) ==
            fr_schedule_worker(o->s, i->stage, i->micro))
            assert_true(made[links[l].from][i->micro]);
        else
            assert_true(channels[l].is_here[i->micro]);
    }
}

static void begin(world *o, const fr_instr *i)
{
    const fr_schedule *s = o->s;
    if (i->action == FR_DO_F) {
        need_inputs(o, i, s->n_forward, s->forward, o->up, o->has_values);
        int uses = 1;
        for (int l = 0; l < s->n_forward; l++) uses += s->forward[l].from == i->stage;
        *slot_user(o, i->stage, i->micro) = i->micro + 1;
        *slot_uses(o, i->stage, i->micro) = uses;
        o->has_gradients[i->stage][i->micro] = false; /* those of the previous walk */
    }
    if (i->action == FR_DO_B || i->action == FR_DO_I) {
        need_inputs(o, i, s->n_backward, s->backward, o->down, o->has_gradients);
        for (int l = 0; l < s->n_backward; l++)
            if (s->backward[l].from == i->stage) *buffer_user(o, l, i->micro) = i->micro + 1;
    }
    /* Values that are read must not be overwritten. */
    if (i->action == FR_DO_B || i->action == FR_DO_I || i->action == FR_DO_W)
        assert_int_equal(*slot_user(o, i->stage, i->micro), i->micro + 1);
    for (int l = 0; i->action <= FR_DO_W && l < s->n_forward; l++)
        if (s->forward[l].to == i->stage)
            assert_int_equal(*slot_user(o, s->forward[l].from, i->micro), i->micro + 1);
}

static void free_slot(world *o, int stage, int micro)
{
    assert_int_equal(*slot_user(o, stage, micro), micro + 1);
    assert_true(*slot_uses(o, stage, micro) > 0);
    if (--*slot_uses(o, stage, micro) == 0) *slot_user(o, stage, micro) = 0;
}

static void end_of_last_use(world *o, const fr_instr *i)
{
    const fr_schedule *s = o->s;
    free_slot(o, i->stage, i->micro);
    for (int l = 0; l < s->n_forward; l++) {
        if (s->forward[l].to != i->stage) continue;
        free_slot(o, s->forward[l].from, i->micro);
        o->up[l].is_here[i->micro] = false;
    }
    if (!s->is_forward_only) o->has_values[i->stage][i->micro] = false;
}

static void finish(world *o, const fr_instr *i)
{
    const fr_schedule *s = o->s;
    bool is_back = i->action == FR_DO_B || i->action == FR_DO_I;
    if (i->action == FR_DO_F) o->has_values[i->stage][i->micro] = true;
    if (is_back) o->has_gradients[i->stage][i->micro] = true;
    for (int l = 0; is_back && l < s->n_backward; l++) { /* what came in has been read */
        if (s->backward[l].to != i->stage) continue;
        int *user = buffer_user(o, l, i->micro);
        assert_int_equal(*user, i->micro + 1);
        *user = 0;
        o->down[l].is_here[i->micro] = false;
    }
    if (s->is_forward_only || i->action == FR_DO_B || i->action == FR_DO_W)
        if (i->action <= FR_DO_W) end_of_last_use(o, i);
    if (i->action == FR_DO_SEND_F || i->action == FR_DO_SEND_B) {
        channel *p = channel_of(o, i);
        int pair = pair_of(s, (fr_link){i->stage, i->peer}, i->micro);
        p->sent[pair][p->n_sent[pair]++ % MOST_MICRO] = i->micro;
    }
    if (i->action == FR_DO_RECV_F || i->action == FR_DO_RECV_B) {
        channel *p = channel_of(o, i);
        int pair = pair_of(s, (fr_link){i->peer, i->stage}, i->micro);
        assert_int_equal(p->sent[pair][p->n_received[pair]++ % MOST_MICRO], i->micro);
        p->is_here[i->micro] = true;
    }
    if (i->action == FR_DO_REDUCE) o->n_reduced[reduction_of(s, i)]++;
}

static bool is_through(world *o, int w) { return o->walk[w] == o->n_walks; }

static void advance(world *o, int w)
{
    if (++o->at[w] < o->s->lists[w].n) return;
    o->at[w] = 0;
    o->walk[w]++;
}

/* One small step of worker w; false if it must wait. */
static bool step(world *o, int w)
{
    if (is_through(o, w)) return false;
    if (o->s->lists[w].n == 0) {
        o->walk[w] = o->n_walks;
        return true;
    }
    const fr_instr *i = &o->s->lists[w].at[o->at[w]];
    if (is_left_out(o, i)) {
        advance(o, w);
    } else if (!o->is_inside[w]) {
        if (must_wait(o, w, i)) return false;
        begin(o, i);
        o->is_inside[w] = true;
    } else {
        finish(o, i);
        o->is_inside[w] = false;
        advance(o, w);
    }
    return true;
}

/* Workers of unequal speed, in random order. */
static void run(world *o, const char *text)
{
    int n = o->s->n_workers, speed[MOST_STAGES];
    for (int w = 0; w < n; w++) speed[w] = random_int(1, 40);
    for (int n_waits = 0; n_waits < n;) {
        int first = random_int(0, n - 1);
        for (n_waits = 0; n_waits < n; n_waits++) { /* the next worker that can run */
            int w = (first + n_waits) % n, left = random_int(1, speed[w]);
            if (!step(o, w)) continue;
            while (--left > 0 && step(o, w)) continue;
            break;
        }
    }
    for (int w = 0; w < n; w++)
        if (!is_through(o, w)) {
            char name[48];
            fail_msg("%s: worker %d never gets past %s", text, w,
                     fr_instr_text(&o->s->lists[w].at[o->at[w]], name));
        }
    for (int k = 0; k < o->s->n_stages; k++)
        for (int q = 0; q < o->s->replicas[k]; q++)
            for (int slot = 0; slot < o->s->n_slots[k]; slot++)
                assert_int_equal(o->slot_uses[k][q][slot], 0);
}

static void never_locks_up(void **unused)
{
    (void)unused;
    world *o = malloc(sizeof *o);
    assert_non_null(o);
    for (int n = 0; n < 4000; n++) {
        random_case c;
        random_case_init(&c, 8, 10);
        fr_schedule *s = make_desc(c.g->name, c.d);
        memset(o, 0, offsetof(world, up));
        memset(o->up, 0, (size_t)s->n_forward * sizeof *o->up);
        memset(o->down, 0, (size_t)s->n_backward * sizeof *o->down);
        o->s = s;
        for (int w = 0; w < s->n_workers; w++)
            for (int i = 0; i < s->lists[w].n; i++)
                if (s->lists[w].at[i].action == FR_DO_REDUCE)
                    o->n_reduces[reduction_of(s, &s->lists[w].at[i])]++;
        o->n_walks = s->is_flush ? random_int(1, 3) : 1;
        o->cut = random_int(1, s->n_batches);
        run(o, random_case_text(&c));
        fr_schedule_free(s);
    }
    free(o);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {cmocka_unit_test(never_locks_up)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fr_ctx_free(ctx);
    return failed;
}
