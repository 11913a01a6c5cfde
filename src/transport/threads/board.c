/* board.c -- boards between threads: contiguous parts, in two halves for even and odd rounds. */
#include "transport/threads/threads.h"

struct fr_board {
    fr_group *group;
    fr_board *next;
    int n_parts, n_readers;
    int *owner;    /* [part] */
    int *readers;  /* [n_readers] the owners, each once */
    char **parts;  /* [round mod 2][part] */
    count *posted; /* [part] rounds */
};

static bool is_among(int member, int n, const int *list)
{
    for (int i = 0; i < n; i++)
        if (list[i] == member) return true;
    return false;
}

fr_status fr__threads_add_board(fr_group *g, int n_parts, const size_t *part_bytes,
                                const int *owner, fr_board **out)
{
    *out = NULL;
    FR_TRY(fr__board_check(g->ctx, g->n_members, n_parts, owner));
    fr_board *b = FR_ARENA_NEW(&g->arena, fr_board);
    int *members = FR_ARENA_ARRAY(&g->arena, int, 2 * n_parts);
    char **parts = FR_ARENA_ARRAY(&g->arena, char *, 2 * n_parts);
    count *posted = FR_ARENA_ARRAY(&g->arena, count, n_parts);
    if (!b || !members || !parts || !posted)
        return fr__no_memory(g->ctx, sizeof *b + (size_t)n_parts * 32, "a board");
    *b = (fr_board){.group = g,
                    .n_parts = n_parts,
                    .owner = members,
                    .readers = members + n_parts,
                    .parts = parts,
                    .posted = posted};
    for (int i = 0; i < n_parts; i++) {
        b->owner[i] = owner[i];
        if (!is_among(owner[i], b->n_readers, b->readers)) b->readers[b->n_readers++] = owner[i];
        for (int half = 0; half < 2; half++) {
            parts[half * n_parts + i] = fr__arena_alloc(&g->arena, part_bytes[i]);
            if (!parts[half * n_parts + i])
                return fr__no_memory(g->ctx, part_bytes[i], "a part of a board");
        }
    }
    b->next = g->boards;
    g->boards = b;
    *out = b;
    return FR_OK;
}

void *fr__threads_board_part(fr_board *b, int64_t round, int part)
{
    return b->parts[(round & 1) * b->n_parts + part];
}

void fr__threads_board_post(fr_board *b, int64_t round, int part)
{
    fr__threads_raise(b->group, &b->posted[part], (uint64_t)round + 1, b->n_readers, b->readers);
}

/* Two halves are enough because a member posts for round r + 1 only when it is done with round r,
 * and begins round r + 2 only after all have posted for r + 1. */
fr_status fr__threads_board_wait(fr_board *b, int64_t round, int member)
{
    fr_ctx *ctx = b->group->ctx;
    if (!is_among(member, b->n_readers, b->readers))
        return fr_fail(
            ctx, FR_INTERNAL,
            "worker %d waits at a board where it has no part: no worker could tell when it "
            "has read",
            member);
    for (int i = 0; i < b->n_parts; i++) {
        FR_TRY(fr__threads_wait(b->group, member, &b->posted[i], (uint64_t)round + 1));
        uint64_t posted = atomic_load_explicit(&b->posted[i], memory_order_relaxed);
        if (posted > (uint64_t)round + 2)
            return fr_fail(ctx, FR_INTERNAL,
                           "part %d of a board is in round %llu while worker %d waits for round "
                           "%lld: its owner, worker %d, did not wait",
                           i, (unsigned long long)posted - 1, member, (long long)round,
                           b->owner[i]);
    }
    return FR_OK;
}

void fr__threads_reset_boards(fr_group *g)
{
    for (fr_board *b = g->boards; b; b = b->next)
        for (int i = 0; i < b->n_parts; i++) atomic_store(&b->posted[i], 0);
}
