/* sync.c -- the list of sync rules, their memory and sums, and the drain they share.
 *
 * Each sum has its own block, into which its rule copies: under some policies the newest weights
 * move from block to block, even while a sum is in progress. */
#include "exec/sync.h"

#include <string.h>

enum { BUCKET = 1 << 20 }; /* floats: long enough for full bandwidth, short enough to overlap */

/* --- registry --------------------------------------------------------------------------------- */

const fr__sync_rule fr__sync_allreduce = {
    .about = {.name = "allreduce", .summary = "gradients are summed before every update"},
};

static const fr__sync_rule *const rules[] = {&fr__sync_allreduce, &fr__sync_average, &fr__sync_wsp};
static const fr_sync *const list[] = {&fr__sync_allreduce.about, &fr__sync_average.about,
                                      &fr__sync_wsp.about, NULL};

const fr_sync *const *fr_sync_list(void) { return list; }

const fr__sync_rule *fr__sync_find(const char *name)
{
    if (!name) return rules[0];
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i]->about.name, name) == 0) return rules[i];
    return NULL;
}

const fr_sync *fr_sync_find(const char *name)
{
    const fr__sync_rule *rule = fr__sync_find(name);
    return rule ? &rule->about : NULL;
}

const char *fr__sync_check(const fr__sync_rule *rule, const fr_sync_options *o)
{
    if (rule->about.has_every && o->every < 1) return "`every`, in updates, must be at least 1";
    if (rule->about.has_distance && o->distance < 0)
        return "`distance`, in waves, must not be negative";
    return NULL;
}

/* --- set-up ----------------------------------------------------------------------------------- */

static fr_sum_desc describe(const fr__syncing *s)
{
    return (fr_sum_desc){.n_members = s->n_members,
                         .members = s->members,
                         .n_buckets = s->n_buckets,
                         .edge = s->edge,
                         .is_at_once = true,
                         .devices = s->devices};
}

bool fr__sync_plan(fr__syncing *s, fr_arena *arena)
{
    if (!s->rule) return true;
    s->n_sums = s->rule->n_sums(&s->options);
    s->n_blocks = s->rule->n_blocks(&s->options);
    s->n_buckets = (int)((s->n + BUCKET - 1) / BUCKET);
    s->stride = fr__align_up(s->n * sizeof(float)) / sizeof(float);
    s->edge = FR_ARENA_ARRAY(arena, size_t, s->n_buckets + 1);
    s->posted = FR_ARENA_ARRAY(arena, float *, s->n_sums);
    s->room = FR_ARENA_ARRAY(arena, char *, s->n_sums);
    s->sums = FR_ARENA_ARRAY(arena, fr_sum *, s->n_sums);
    s->blocks = FR_ARENA_ARRAY(arena, float *, s->n_blocks + 1);
    s->devices = FR_ARENA_ARRAY(arena, fr_device *, s->n_members);
    if (!s->edge || !s->posted || !s->room || !s->sums || !s->blocks || !s->devices) return false;
    s->devices[s->nth] = s->device;
    for (int i = 0; i < s->n_buckets; i++) s->edge[i] = (size_t)i * BUCKET;
    s->edge[s->n_buckets] = s->n;
    fr_sum_desc d = describe(s);
    s->room_bytes = fr__align_up(s->transport->sum_room(s->group, &d, s->nth));
    s->bytes = (size_t)s->n_sums * s->room_bytes +
               (size_t)(s->n_sums + s->n_blocks) * s->stride * sizeof(float);
    return true;
}

void fr__sync_place(fr__syncing *s, char *memory)
{
    float *at = (float *)(void *)memory;
    for (int i = 0; i < s->n_sums; i++, at += s->stride) s->posted[i] = at;
    for (int i = 0; i < s->n_blocks; i++, at += s->stride) s->blocks[i] = at;
    memory = (char *)at;
    for (int i = 0; i < s->n_sums; i++, memory += s->room_bytes) s->room[i] = memory;
}

fr_status fr__sync_open(fr_ctx *ctx, fr_arena *arena, fr__syncing *const *of,
                        const fr__syncing *any)
{
    float **memory = FR_ARENA_ARRAY(arena, float *, any->n_members);
    char **room = FR_ARENA_ARRAY(arena, char *, any->n_members);
    if (!memory || !room) return fr__no_memory(ctx, (size_t)any->n_members * 8, "replicas");
    for (int i = 0; i < any->rule->n_sums(&any->options); i++) {
        fr_sum_desc d = describe(any);
        fr_sum *sum;
        d.memory = memory, d.room = room;
        for (int k = 0; k < any->n_members; k++) {
            any->devices[k] = of[k] ? of[k]->device : NULL;
            memory[k] = of[k] ? of[k]->posted[i] : NULL;
            room[k] = of[k] ? of[k]->room[i] : NULL;
        }
        FR_TRY(any->transport->add_sum(any->group, &d, &sum));
        for (int k = 0; k < any->n_members; k++)
            if (of[k]) of[k]->sums[i] = sum;
    }
    return FR_OK;
}

/* --- sums ------------------------------------------------------------------------------------- */

void fr__sync_post(fr__syncing *s, int k, bool is_alive)
{
    const fr__exec_hooks *h = s->hooks;
    size_t n = (size_t)s->n_members, bytes = 2 * sizeof(float) * s->n * (n - 1) / n;
    if (h->posted) h->posted(h->user, FR__SUM_SYNC, k, 1, is_alive ? bytes : 0, is_alive);
    for (int i = 0; i < s->n_buckets; i++) s->transport->sum_post(s->sums[k], s->nth, i, is_alive);
}

static fr_status wait_bucket(fr__syncing *s, int k, int bucket, bool *is_alive)
{
    fr__exec_waits(s->hooks, true);
    fr_status status = s->transport->sum_wait(s->sums[k], s->nth, bucket, is_alive);
    fr__exec_waits(s->hooks, false);
    return status;
}

fr_status fr__sync_wait(fr__syncing *s, int k, fr__sync_take_fn take, bool *is_alive)
{
    *is_alive = true;
    for (int i = 0; i < s->n_buckets; i++) {
        FR_TRY(wait_bucket(s, k, i, is_alive));
        for (int j = 0; *is_alive && take && j < s->n_members; j++) {
            size_t at, count;
            const float *sum = s->transport->sum_piece(s->sums[k], s->nth, i, j, &at, &count);
            if (count > 0) FR_TRY(take(s, at, count, sum));
        }
    }
    if (s->hooks->taken) s->hooks->taken(s->hooks->user, FR__SUM_SYNC, k, *is_alive);
    return FR_OK;
}

/* --- means ------------------------------------------------------------------------------------ */

static fr_status take_mean(fr__syncing *s, size_t offset, size_t count, const float *sum)
{
    const float by = (float)s->n_members;
    if (s->type == FR_F32) {
        fr__device_blend(s->device, FR_BLEND_DIVIDE, (float *)s->to + offset, sum, by, count);
        return FR_OK;
    }
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < s->n_scratch ? count - at : s->n_scratch;
        fr__device_blend(s->device, FR_BLEND_DIVIDE, s->scratch, sum + at, by, n);
        FR_TRY(fr__device_convert(s->device, s->type, (uint16_t *)s->to + offset + at, FR_F32,
                                  s->scratch, n));
    }
    return FR_OK;
}

fr_status fr__sync_mean(fr__syncing *s, fr_dtype type, void *block, bool is_given, bool *is_alive)
{
    s->to = block;
    s->type = type;
    if (is_given) FR_TRY(fr__device_convert(s->device, FR_F32, s->posted[0], type, block, s->n));
    FR_TRY(fr_device_sync(s->device));
    fr__sync_post(s, 0, is_given);
    return fr__sync_wait(s, 0, take_mean, is_alive);
}

/* --- a call ----------------------------------------------------------------------------------- */

fr_status fr__sync_begin(fr__syncing *s)
{
    s->round = s->taken = 0;
    return s->rule && s->rule->begin ? s->rule->begin(s) : FR_OK;
}

fr_status fr__sync_stepped(fr__syncing *s, int64_t batch, bool is_alive, bool *all_alive)
{
    *all_alive = true;
    return s->rule ? s->rule->stepped(s, batch, is_alive, all_alive) : FR_OK;
}

/* Without it on some replica (that has made no update yet) there is none anywhere. */
static fr_status drain_memory(fr__syncing *s, int64_t version)
{
    bool is_alive;
    const fr_policy_state m = fr_store_policy_state(s->store);
    if (!m.at) return FR_OK;
    FR_TRY(fr__sync_mean(s, m.type, m.at, m.is_valid, &is_alive));
    if (is_alive)
        fr_store_set_policy_state(s->store);
    else
        FR_TRY(fr_store_reset(s->store, version));
    return FR_OK;
}

fr_status fr__sync_drain(fr__syncing *s, int64_t version)
{
    bool is_alive;
    if (!s->rule) return FR_OK;
    /* A run that diverges stops replicas at different updates. */
    if (fr_store_version(s->store) != version) fr_store_renumber(s->store, version);
    FR_TRY(s->rule->drain(s));
    for (int i = 0; i < s->n_state; i++)
        FR_TRY(fr__sync_mean(s, FR_F32, s->state[i], true, &is_alive));
    return drain_memory(s, version);
}
