/* plan_forward.c -- places of the values of a forward pass.
 *
 * A value that a backward reads is placed in the slot or, if its unit runs again, in the area of
 * recomputed values; all others share the workspace according to their lifetimes. A unit that runs
 * again finds the values of those that do not in the slot. A value that is its input under another
 * name (flatten), or that may overwrite its input (dropout), shares the input's place: both are
 * members of one class. */
#include "backend/program.h"

typedef struct plan {
    fr_program *p;
    /* All by fr__local. */
    int *root;     /* representative of its class */
    bool *kept;    /* read by a backward, or by a unit that runs again and does not make it */
    int *last_use; /* last unit that reads it in the forward, or the one that makes it */
    /* For a representative, these three describe its class: kept by any, last use of all, most
     * bytes. */
    size_t *bytes;
} plan;

static int root_of(const plan *f, int node)
{
    while (f->root[node] != node) node = f->root[node];
    return node;
}

static void find_uses(plan *f)
{
    fr_program *p = f->p;
    for (int i = 0; i < p->n_local; i++) {
        f->root[i] = i;
        f->last_use[i] = p->unit_of[i];
        if (p->unit_of[i] >= 0) f->bytes[i] = p->layout[i]->bytes;
    }
    for (int u = 0; u < p->n_units; u++) {
        const fr__kernel *k = p->units[u].kernel;
        const fr__unit *s = &p->units[u];
        const bool goes_back = p->desc.training && fr__unit_goes_back(s);
        for (int i = 0; i < s->n_inputs; i++) {
            int x = fr__local(p, s->inputs[i].node);
            f->last_use[x] = u;
            int maker = p->unit_of[x];
            if (goes_back && (k->needs_x >> i & 1)) f->kept[x] = true;
            if (s->again && !(maker >= 0 && p->units[maker].again)) f->kept[x] = true;
        }
        if (goes_back && k->needs_y) f->kept[fr__local(p, fr__unit_out(s))] = true;
    }
}

/* A value that runs again must not share memory with one that does not. */
static bool is_alike(const plan *f, int node, int u)
{
    int maker = f->p->unit_of[root_of(f, node)];
    return maker >= 0 && f->p->units[maker].again == f->p->units[u].again;
}

/* Is the class of `node` read by no backward and, after unit u, by no forward either? */
static bool is_dead_after(const plan *f, int node, int u)
{
    int root = root_of(f, node);
    return !f->kept[root] && f->last_use[root] <= u;
}

static void join(plan *f, int root, int node)
{
    f->root[node] = root;
    f->kept[root] |= f->kept[node];
    if (f->last_use[node] > f->last_use[root]) f->last_use[root] = f->last_use[node];
    if (f->bytes[node] > f->bytes[root]) f->bytes[root] = f->bytes[node];
}

static void share_places(plan *f)
{
    fr_program *p = f->p;
    for (int u = 0; u < p->n_units; u++) {
        const fr__kernel *k = p->units[u].kernel;
        const fr__unit *s = &p->units[u];
        if (s->n_inputs == 0 || fr_program_find_output(p, fr__unit_out(s)) >= 0) continue;
        int y = fr__local(p, fr__unit_out(s)), x = fr__local(p, s->inputs[0].node);
        bool is_port = p->value[root_of(f, x)].area != FR_AREA_NONE;
        bool can_overwrite = k->can_overwrite_x0 && !is_port && k->y.bytes == p->layout[x]->bytes &&
                             is_dead_after(f, x, u) && is_alike(f, x, u);
        if (k->y_is_x0 || can_overwrite) join(f, root_of(f, x), y);
    }
}

static void place_ports(fr_program *p)
{
    for (int i = 0; i < p->n_inputs; i++)
        p->value[fr__local(p, p->inputs[i].node)] = fr__place_at(FR_AREA_INPUT, (size_t)i);
    for (int i = 0; i < p->n_outputs; i++)
        p->value[fr__local(p, p->outputs[i].node)] = fr__place_at(FR_AREA_OUTPUT, (size_t)i);
}

/* A class lives from the unit that makes its root to the last one that reads a member. */
static fr_status place_classes(plan *f, size_t *work_bytes)
{
    fr_program *p = f->p;
    int n = p->n_local, n_leases = 0;
    fr__lease *leases = FR_ARENA_ARRAY(&p->making, fr__lease, n);
    int *lease_node = FR_ARENA_ARRAY(&p->making, int, n);
    if (!leases || !lease_node) return fr__no_memory(p->ctx, (size_t)n, "a program");
    for (int r = 0; r < n; r++) {
        if (p->unit_of[r] < 0 || root_of(f, r) != r || p->value[r].area != FR_AREA_NONE) continue;
        fr__lease lease = {.bytes = f->bytes[r], .first = p->unit_of[r], .last = f->last_use[r]};
        if (f->kept[r]) {
            p->value[r] =
                fr__slot_take(p, p->stage.first + r, lease.bytes, p->units[p->unit_of[r]].again);
        } else {
            lease_node[n_leases] = r;
            leases[n_leases++] = lease;
        }
    }
    if (!fr__memplan(leases, n_leases, work_bytes))
        return fr__no_memory(p->ctx, (size_t)n_leases, "a program");
    for (int i = 0; i < n_leases; i++)
        p->value[lease_node[i]] = fr__place_at(FR_AREA_WORK, leases[i].offset);
    FR_TRY(fr__note_values(p, leases, n_leases, p->n_units, NULL));
    for (int i = 0; i < n; i++) {
        int r = root_of(f, i);
        if (r != i) p->value[i] = p->value[r];
    }
    return FR_OK;
}

static void mark_kept_ports(plan *f)
{
    fr_program *p = f->p;
    for (int i = 0; i < p->n_local; i++) {
        if (!f->kept[i]) continue;
        if (p->value[i].area == FR_AREA_INPUT) p->inputs[p->value[i].offset].kept = true;
        if (p->value[i].area == FR_AREA_OUTPUT) p->outputs[p->value[i].offset].kept = true;
    }
}

static fr_status list_steps(fr_program *p)
{
    size_t n = (size_t)p->n_units;
    if (!fr__vec_fit(&p->forward, n)) return fr__no_memory(p->ctx, n, "steps");
    for (int u = 0; u < p->n_units; u++) {
        const fr__unit *unit = &p->units[u];
        fr__step step = {.kind = FR_STEP_FORWARD, .unit = u};
        if (unit->kernel->y_is_x0) {
            fr__tensor_place to = p->value[fr__local(p, fr__unit_out(unit))];
            if (to.area != FR_AREA_OUTPUT) continue; /* nothing to do */
            step = (fr__step){.kind = FR_STEP_COPY,
                              .unit = u,
                              .to = to,
                              .from = p->value[fr__local(p, unit->inputs[0].node)],
                              .bytes = unit->kernel->y.bytes};
        }
        if (!fr__vec_push(&p->forward, step) || (unit->again && !fr__vec_push(&p->again, step)))
            return fr__no_memory(p->ctx, sizeof step, "steps");
    }
    return FR_OK;
}

fr_status fr__plan_forward(fr_program *p, size_t *work_bytes)
{
    int n = p->n_local;
    plan f = {.p = p,
              .root = FR_ARENA_ARRAY(&p->making, int, n),
              .kept = FR_ARENA_ARRAY(&p->making, bool, n),
              .last_use = FR_ARENA_ARRAY(&p->making, int, n),
              .bytes = FR_ARENA_ARRAY(&p->making, size_t, n)};
    p->value = FR_ARENA_ARRAY(&p->arena, fr__tensor_place, n);
    if (!f.root || !f.kept || !f.last_use || !f.bytes || !p->value)
        return fr__no_memory(p->ctx, (size_t)n, "a program");
    find_uses(&f);
    place_ports(p);
    share_places(&f);
    FR_TRY(place_classes(&f, work_bytes));
    mark_kept_ports(&f);
    return list_steps(p);
}
