/* text.c -- the text form: a few header lines, then one line per worker. It holds everything except
 * slots and buffers, which follow from the lists.
 *
 *     forerun-schedule 1
 *     name 1f1b
 *     stages 2
 *     workers 2
 *     micro 2
 *     batches 1
 *     flush yes
 *     worker_of 0 1
 *     forward 0>1
 *     backward 1>0
 *     worker 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0STEP0
 *     worker 1: 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1STEP0
 *
 * If a stage has more than one worker, "replicas 2 1" gives the number per stage, and worker_of is
 * the first worker. */
#include "base/text.h"
#include "base/alloc.h"
#include "sched/sched.h"

#include <stdio.h>
#include <string.h>

void fr_text_free(char *text) { fr__free(text); }

static void print_ints(fr__text *p, const char *name, int n, const int *values)
{
    fr__text_printf(p, "%s", name);
    for (int i = 0; i < n; i++) fr__text_printf(p, " %d", values[i]);
    fr__text_printf(p, "\n");
}

static void print_links(fr__text *p, const char *name, int n, const fr_link *links)
{
    fr__text_printf(p, "%s", name);
    for (int i = 0; i < n; i++) fr__text_printf(p, " %d>%d", links[i].from, links[i].to);
    fr__text_printf(p, "\n");
}

char *fr_schedule_to_text(const fr_schedule *s)
{
    fr__text p = {0};
    char text[48];
    fr__text_printf(&p, "forerun-schedule 1\nname %s\n", s->name);
    fr__text_printf(&p, "stages %d\nworkers %d\nmicro %d\nbatches %d\nflush %s\n", s->n_stages,
                    s->n_workers, s->n_micro, s->n_batches, s->is_flush ? "yes" : "no");
    print_ints(&p, "worker_of", s->n_stages, s->worker_of);
    if (fr__has_replicas(s)) print_ints(&p, "replicas", s->n_stages, s->replicas);
    print_links(&p, "forward", s->n_forward, s->forward);
    print_links(&p, "backward", s->n_backward, s->backward);
    for (int w = 0; w < s->n_workers; w++) {
        fr__text_printf(&p, "worker %d:", w);
        for (int i = 0; i < s->lists[w].n; i++)
            fr__text_printf(&p, " %s", fr_instr_text(&s->lists[w].at[i], text));
        fr__text_printf(&p, "\n");
    }
    return fr__text_take(&p);
}
