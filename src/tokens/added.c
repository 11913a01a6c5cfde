/* added.c -- tokens that are found in the text as they are, such as <|endoftext|>: a trie, walked
 * from each place whose byte begins one. The first token counts; of those that begin there, the
 * longest. */
#include "tokens/tokenizer.h"

#include <string.h>

enum { NONE = -1 };

static size_t edge_slot(const fr__added *a, uint64_t edge)
{
    size_t slot = (size_t)(edge * 0x9E3779B97F4A7C15u >> 32) & (a->n_edge_slots - 1);
    while (a->edges[slot] && a->edges[slot] != edge) slot = (slot + 1) & (a->n_edge_slots - 1);
    return slot;
}

static bool grow_edges(fr__added *a)
{
    fr__added old = *a;
    size_t n = old.n_edge_slots ? 2 * old.n_edge_slots : 256;
    a->edges = FR_NEW_ARRAY(uint64_t, n);
    a->edge_to = FR_NEW_ARRAY(uint32_t, n);
    if (!a->edges || !a->edge_to) {
        fr__free(a->edges);
        fr__free(a->edge_to);
        *a = old;
        return false;
    }
    a->n_edge_slots = n;
    for (size_t i = 0; i < old.n_edge_slots; i++) {
        if (!old.edges[i]) continue;
        size_t slot = edge_slot(a, old.edges[i]);
        a->edges[slot] = old.edges[i], a->edge_to[slot] = old.edge_to[i];
    }
    fr__free(old.edges);
    fr__free(old.edge_to);
    return true;
}

/* The node behind a byte; 0: none, as the root is behind no byte. */
static uint32_t follow(const fr__added *a, uint32_t node, unsigned char byte)
{
    size_t slot = edge_slot(a, ((uint64_t)node << 8 | byte) + 1);
    return a->edges[slot] ? a->edge_to[slot] : 0;
}

bool fr__added_put(fr__added *a, const unsigned char *text, size_t n, int32_t id)
{
    uint32_t node = 0;
    if (a->node_id.n == 0 && !fr__vec_push(&a->node_id, NONE)) return false;
    for (size_t i = 0; i < n; i++) {
        if (2 * (a->n_edges + 1) > a->n_edge_slots && !grow_edges(a)) return false;
        uint32_t next = follow(a, node, text[i]);
        if (!next) {
            uint64_t edge = ((uint64_t)node << 8 | text[i]) + 1;
            size_t slot = edge_slot(a, edge);
            next = (uint32_t)a->node_id.n;
            if (!fr__vec_push(&a->node_id, NONE)) return false;
            a->edges[slot] = edge, a->edge_to[slot] = next;
            a->n_edges++;
        }
        node = next;
    }
    if (node == 0) return true;
    a->node_id.at[node] = id;
    a->n_first += !a->first[text[0]];
    a->first[text[0]] = true;
    return true;
}

/* The longest token that begins here. False: the text ends inside one that may be longer. */
static bool match(const fr__added *a, const unsigned char *p, const unsigned char *end, size_t *n,
                  int32_t *id)
{
    uint32_t node = 0;
    *n = 0;
    for (const unsigned char *q = p; q < end; q++) {
        node = follow(a, node, *q);
        if (!node) return true;
        if (a->node_id.at[node] != NONE) *n = (size_t)(q + 1 - p), *id = a->node_id.at[node];
    }
    return false;
}

size_t fr__added_find(const fr__added *a, const unsigned char *text, size_t bytes, bool is_end,
                      size_t *n, int32_t *id)
{
    const unsigned char *end = text + bytes;
    *n = 0;
    for (const unsigned char *p = text; a->n_first > 0 && p < end; p++) {
        while (p < end && !a->first[*p]) p++;
        if (p == end) break;
        if (!match(a, p, end, n, id) && !is_end) {
            *n = 0;
            return (size_t)(p - text);
        }
        if (*n) return (size_t)(p - text);
    }
    return bytes;
}

void fr__added_fini(fr__added *a)
{
    fr__vec_fini(&a->node_id);
    fr__free(a->edges);
    fr__free(a->edge_to);
}
