/* choose_devices.c -- which devices a layout may take, and which stage on which of them.
 *
 * Devices of one group with one speed and one memory are of one class: they can take each other's
 * place. Where the classes allow few enough places for so many workers and replicas, these are all
 * of them. Else all devices are put in an order (as in the file, the fastest first, group by group
 * with the fastest group first, the largest memory first, those of one group first), and the first
 * so many are taken: as they come, the other way round, as in the file, and with the stages of a
 * pipeline side by side in place of the replicas of a stage, or each pipeline in one group. Which
 * of the places is best, estimates and simulations tell; the best are improved by exchanging
 * devices (choose_move.c). */
#include "plan/choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PLACES = 150 };

struct ranked {
    double first, second, third; /* larger comes first */
    int device;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->first != y->first) return x->first > y->first ? -1 : 1;
    if (x->second != y->second) return x->second > y->second ? -1 : 1;
    if (x->third != y->third) return x->third > y->third ? -1 : 1;
    return x->device - y->device;
}

static fr_status no_memory(const struct fr__chooser *c)
{
    return fr__no_memory(c->ctx, (size_t)c->d->cluster->n_devices * sizeof(struct ranked),
                         "the devices of a plan");
}

/* --- classes and orders ----------------------------------------------------------------------- */

static void find_classes(struct fr__chooser *c, const struct fr__task *t, struct ranked *all)
{
    const fr_cluster *k = c->d->cluster;
    const int n = k->n_devices;
    for (int d = 0; d < n; d++)
        all[d] = (struct ranked){-k->devices[d].group, t->speed[d], t->memory[d], d};
    qsort(all, (size_t)n, sizeof *all, by_rank);
    c->n_classes = 0;
    for (int i = 0; i < n; i++) {
        bool is_like = i > 0 && all[i].first == all[i - 1].first &&
                       all[i].second == all[i - 1].second && all[i].third == all[i - 1].third;
        c->class_of[all[i].device] = is_like ? c->n_classes - 1 : c->n_classes++;
    }
}

/* The order is new to the chooser: added. */
static fr_status add_order(struct fr__chooser *c, struct ranked *all)
{
    const int n = c->d->cluster->n_devices;
    int *order = FR_ARENA_ARRAY(c->arena, int, n);
    if (!order) return no_memory(c);
    qsort(all, (size_t)n, sizeof *all, by_rank);
    for (int i = 0; i < n; i++) order[i] = all[i].device;
    for (int k = 0; k < c->n_orders; k++)
        if (memcmp(order, c->orders[k], (size_t)n * sizeof *order) == 0) return FR_OK;
    c->orders[c->n_orders++] = order;
    return FR_OK;
}

static bool is_inside(const fr_cluster *k, int device, int group)
{
    int g = k->devices[device].group;
    while (g > group) g = k->groups[g].parent; /* parents come first */
    return g == group;
}

/* The devices of one box first, whose links others need not share, then all others: of the boxes
 * that compute most, as many as there is room for. */
static fr_status add_boxes(struct fr__chooser *c, const struct fr__task *t, struct ranked *all,
                           double *speed)
{
    const fr_cluster *k = c->d->cluster;
    for (int g = 0; g < k->n_groups; g++) speed[g] = 0;
    for (int d = 0; d < k->n_devices; d++)
        for (int g = k->devices[d].group; g > 0; g = k->groups[g].parent) speed[g] += t->speed[d];
    while (c->n_orders < (int)(sizeof c->orders / sizeof *c->orders)) {
        int box = 0;
        for (int g = 1; g < k->n_groups; g++)
            if (speed[g] > speed[box]) box = g;
        if (box == 0) break;
        speed[box] = 0;
        for (int d = 0; d < k->n_devices; d++)
            all[d] = (struct ranked){is_inside(k, d, box), t->speed[d], t->memory[d], d};
        FR_TRY(add_order(c, all));
    }
    return FR_OK;
}

static fr_status add_orders(struct fr__chooser *c, const struct fr__task *t, struct ranked *all,
                            double *mean)
{
    const fr_cluster *k = c->d->cluster;
    const int n = k->n_devices;
    double *count = mean + k->n_groups;
    for (int d = 0; d < n; d++) all[d] = (struct ranked){0, 0, 0, d};
    FR_TRY(add_order(c, all));
    for (int d = 0; d < n; d++) all[d] = (struct ranked){t->speed[d], t->memory[d], 0, d};
    FR_TRY(add_order(c, all));
    c->fastest = c->orders[c->n_orders - 1]; /* or the file's, which is the same then */
    for (int d = 0; d < n; d++) {
        mean[k->devices[d].group] += t->speed[d];
        count[k->devices[d].group]++;
    }
    for (int d = 0; d < n; d++) {
        int g = k->devices[d].group;
        all[d] = (struct ranked){mean[g] / count[g], -g, t->speed[d], d};
    }
    FR_TRY(add_order(c, all));
    for (int d = 0; d < n; d++) all[d] = (struct ranked){t->memory[d], t->speed[d], 0, d};
    FR_TRY(add_order(c, all));
    return add_boxes(c, t, all, count);
}

/* All devices are alike, and so are the boxes that hold them, one behind the other in the file: no
 * device is better than another, and the first so many are as close to each other as any. */
static bool is_even(const struct fr__chooser *c, const struct fr__task *t)
{
    const fr_cluster *k = c->d->cluster;
    int n[FR__MAX_LEVELS];
    double bandwidth[FR__MAX_LEVELS];
    if (!t->are_alike || fr__levels_of(k, n, bandwidth) == 0) return false;
    for (int d = 1; d < k->n_devices; d++) {
        int a = k->devices[d - 1].group, b = k->devices[d].group;
        if (a > b) return false;
        for (; a != b && a >= 0 && b >= 0; a = k->groups[a].parent, b = k->groups[b].parent)
            if (k->groups[a].bandwidth != k->groups[b].bandwidth ||
                k->groups[a].latency != k->groups[b].latency ||
                k->groups[a].is_shared != k->groups[b].is_shared)
                return false;
        if (a != b) return false;
    }
    return true;
}

fr_status fr__choose_devices(struct fr__chooser *c, const struct fr__task *t)
{
    const fr_cluster *k = c->d->cluster;
    if (c->class_of) return FR_OK;
    c->class_of = FR_ARENA_ARRAY(c->arena, int, k->n_devices);
    struct ranked *all = FR_NEW_ARRAY(struct ranked, k->n_devices);
    double *mean = FR_NEW_ARRAY(double, 2 * k->n_groups + 1);
    fr_status status = c->class_of && all && mean ? FR_OK : no_memory(c);
    if (status == FR_OK) {
        find_classes(c, t, all);
        c->has_choice = c->n_classes > 1, c->is_even = is_even(c, t);
        status = add_orders(c, t, all, mean);
    }
    fr__free(all), fr__free(mean);
    return status;
}

/* --- places ----------------------------------------------------------------------------------- */

/* Replicas of a worker in the order of the file, where they need not match those of the next; a
 * place that is like a known one is left out. */
static fr_status add_place(struct fr__chooser *c, struct fr__shape *s, const int *at,
                           bool is_across)
{
    const int n = s->n_wide * s->replicas;
    int *own = FR_ARENA_ARRAY(c->arena, int, n);
    if (!own) return no_memory(c);
    memcpy(own, at, (size_t)n * sizeof *own);
    for (int w = 0; w < s->n_wide && s->replicas > 1 && !is_across; w++)
        qsort(own + w * s->replicas, (size_t)s->replicas, sizeof *own, fr__by_int);
    for (size_t k = 0; k < s->places.n; k++) {
        const int *known = s->places.at[k].device_of;
        int w = 0;
        while (w < n && c->class_of[own[w]] == c->class_of[known[w]]) w++;
        if (w == n) return FR_OK;
    }
    return fr__vec_push(&s->places, ((struct fr__place){own, is_across})) ? FR_OK : no_memory(c);
}

struct walk {
    struct fr__chooser *c;
    struct fr__shape *shape;
    int *at;       /* [worker] so far */
    bool *is_used; /* [device] */
};

/* All places, worker by worker; replicas of one in the order of classes. Stops where there are more
 * than MOST_PLACES. */
static fr_status place_all(struct walk *w, int n)
{
    struct fr__chooser *c = w->c;
    const int n_all = c->d->cluster->n_devices, r = w->shape->replicas;
    if (w->shape->places.n > MOST_PLACES) return FR_OK;
    if (n == w->shape->n_wide * r) return add_place(c, w->shape, w->at, false);
    int least = n % r ? c->class_of[w->at[n - 1]] : -1;
    for (int d = 0; d < n_all; d++) {
        bool is_first = !w->is_used[d] && c->class_of[d] >= least;
        for (int e = 0; e < d && is_first; e++) /* the first of its class that is left */
            is_first = w->is_used[e] || c->class_of[e] != c->class_of[d];
        if (!is_first) continue;
        w->is_used[d] = true, w->at[n] = d;
        FR_TRY(place_all(w, n + 1));
        w->is_used[d] = false;
    }
    return FR_OK;
}

/* Each pipeline on devices of one group that follow each other in the order, where there are
 * enough: no value then leaves its group. */
static fr_status place_inside(struct walk *w, const int *order)
{
    const fr_cluster *k = w->c->d->cluster;
    const int n_wide = w->shape->n_wide, r = w->shape->replicas;
    int n = 0, n_like = 0; /* pipelines; devices of one group so far */
    for (int i = 0; i < k->n_devices && n < r; i++) {
        const int group = k->devices[order[i]].group;
        n_like = n_like && k->devices[order[i - 1]].group == group ? n_like + 1 : 1;
        if (n_like < n_wide) continue;
        for (int s = 0; s < n_wide; s++) w->at[s * r + n] = order[i - n_wide + 1 + s];
        n++, n_like = 0;
    }
    return n == r ? add_place(w->c, w->shape, w->at, true) : FR_OK;
}

/* The first devices of an order, put to use in these ways. */
static fr_status place_first(struct walk *w, const int *order)
{
    const int n_wide = w->shape->n_wide, r = w->shape->replicas, n = n_wide * r;
    const int n_all = w->c->d->cluster->n_devices;
    for (int i = 0; i < n; i++) w->at[i] = order[i];
    FR_TRY(add_place(w->c, w->shape, w->at, false));
    for (int i = 0; i < n; i++) w->at[i] = order[n - 1 - i];
    FR_TRY(add_place(w->c, w->shape, w->at, false));
    for (int i = 0; i < n; i++) w->at[i % n_wide * r + i / n_wide] = order[i];
    FR_TRY(add_place(w->c, w->shape, w->at, r > 1 && n_wide > 1));
    if (r > 1 && n_wide > 1) FR_TRY(place_inside(w, order));
    memset(w->is_used, 0, (size_t)n_all * sizeof *w->is_used);
    for (int i = 0; i < n; i++) w->is_used[order[i]] = true;
    for (int d = 0, i = 0; d < n_all; d++)
        if (w->is_used[d]) w->at[i++] = d;
    return add_place(w->c, w->shape, w->at, false);
}

/* One device of each class, the fastest first. */
static fr_status place_one(struct walk *w)
{
    enum { ENOUGH = 16 };
    for (int i = 0; i < w->c->d->cluster->n_devices && w->shape->places.n < ENOUGH; i++) {
        w->at[0] = w->c->fastest[i];
        FR_TRY(add_place(w->c, w->shape, w->at, false));
    }
    return FR_OK;
}

/* The first so many, as they come; where they are in several boxes, with the stages of a pipeline
 * side by side, too. */
static fr_status place_even(struct fr__chooser *c, struct fr__shape *s)
{
    const int r = s->replicas, n_wide = s->n_wide;
    if (!fr__vec_push(&s->places, ((struct fr__place){0}))) return no_memory(c);
    if (c->n_classes == 1 || r == 1 || n_wide == 1) return FR_OK;
    int *at = FR_ARENA_ARRAY(c->arena, int, n_wide *r);
    if (!at) return no_memory(c);
    for (int i = 0; i < n_wide * r; i++) at[i % n_wide * r + i / n_wide] = i;
    return fr__vec_push(&s->places, ((struct fr__place){at, true})) ? FR_OK : no_memory(c);
}

static fr_status fill_shape(struct fr__chooser *c, struct fr__shape *s)
{
    enum { FEW = 12 }; /* devices; of more there are too many places in any case */
    const int n_all = c->d->cluster->n_devices, n = s->n_wide * s->replicas;
    if (!c->has_choice || c->is_even) return place_even(c, s);
    struct walk w = {.c = c, .shape = s};
    w.at = FR_NEW_ARRAY(int, n_all), w.is_used = FR_NEW_ARRAY(bool, n_all);
    fr_status status = w.at && w.is_used ? FR_OK : no_memory(c);
    if (status == FR_OK && n == 1) status = place_one(&w);
    if (status == FR_OK && n > 1 && n_all <= FEW) status = place_all(&w, 0);
    if (status == FR_OK && (s->places.n == 0 || s->places.n > MOST_PLACES)) {
        s->places.n = 0;
        for (int k = 0; k < c->n_orders && status == FR_OK; k++)
            status = place_first(&w, c->orders[k]);
    }
    fr__free(w.at), fr__free(w.is_used);
    return status;
}

fr_status fr__choose_shape(struct fr__chooser *c, int n_wide, int replicas,
                           const struct fr__shape **out)
{
    for (size_t i = 0; i < c->shapes.n; i++) {
        const struct fr__shape *s = *out = c->shapes.at[i];
        if (s->n_wide == n_wide && s->replicas == replicas) return FR_OK;
    }
    struct fr__shape *s = FR_ARENA_NEW(c->arena, struct fr__shape);
    if (!s || !fr__vec_push(&c->shapes, s)) return no_memory(c);
    s->n_wide = n_wide, s->replicas = replicas;
    *out = s;
    return fill_shape(c, s);
}
