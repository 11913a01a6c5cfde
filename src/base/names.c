/* names.c -- a hash table with open addressing (FNV-1a, linear probing, powers of two). */
#include "base/names.h"

#include <string.h>

struct fr__name_slot {
    const char *name; /* NULL: free */
    int index;
};

static size_t hash(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return (size_t)(h ^ (h >> 32));
}

static struct fr__name_slot *slot_of(const fr__names *t, const char *name)
{
    size_t i = hash(name) & (t->room - 1);
    while (t->slots[i].name && strcmp(t->slots[i].name, name) != 0) i = (i + 1) & (t->room - 1);
    return &t->slots[i];
}

int fr__names_find(const fr__names *t, const char *name)
{
    if (!t->room) return -1;
    const struct fr__name_slot *s = slot_of(t, name);
    return s->name ? s->index : -1;
}

static bool grow(fr__names *t)
{
    fr__names bigger = {.room = t->room ? 2 * t->room : 64, .n = t->n};
    bigger.slots = FR_NEW_ARRAY(struct fr__name_slot, bigger.room);
    if (!bigger.slots) return false;
    for (size_t i = 0; i < t->room; i++)
        if (t->slots[i].name) *slot_of(&bigger, t->slots[i].name) = t->slots[i];
    fr__free(t->slots);
    *t = bigger;
    return true;
}

bool fr__names_add(fr__names *t, const char *name, int index)
{
    if (2 * (t->n + 1) > t->room && !grow(t)) return false;
    *slot_of(t, name) = (struct fr__name_slot){name, index};
    t->n++;
    return true;
}

void fr__names_fini(fr__names *t)
{
    fr__free(t->slots);
    *t = (fr__names){0};
}
