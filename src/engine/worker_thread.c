/* worker_thread.c -- jobs for the workers' threads: devices, programs and lists belong to the
 * thread that uses them, so all work on them is a job. */
#include "engine/engine.h"

#include <stdio.h>

void fr__job_start(fr__worker *w, fr__job job)
{
    w->job = job;
    w->job_arg = NULL;
    w->job_status = FR_OK;
    w->engine->n_running++;
    pthread_cond_signal(&w->wakes);
}

/* With the lock held. */
static void wait_for_jobs(fr_engine *e)
{
    while (e->n_running > 0) pthread_cond_wait(&e->caller_wakes, &e->lock);
}

fr_status fr__jobs_run(fr_engine *e, fr__job job, bool one_by_one)
{
    fr_status status = FR_OK;
    fr__worker *mine = &e->workers[e->first_worker];
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->n_local && status == FR_OK; i++) {
        fr__job_start(&mine[i], job);
        if (!one_by_one) continue;
        wait_for_jobs(e);
        status = mine[i].job_status;
    }
    wait_for_jobs(e);
    for (int i = 0; i < e->n_local && status == FR_OK; i++) status = mine[i].job_status;
    pthread_mutex_unlock(&e->lock);
    return status;
}

void *fr__worker_main(void *worker)
{
    fr__worker *w = worker;
    fr_engine *e = w->engine;
    char name[16];
    snprintf(name, sizeof name, "worker %d", w->index);
    fr__thread_name(name);
    pthread_mutex_lock(&e->lock);
    while (!e->must_quit) {
        if (!w->job) {
            pthread_cond_wait(&w->wakes, &e->lock);
            continue;
        }
        pthread_mutex_unlock(&e->lock);
        fr_status status = w->job(w, w->job_arg);
        pthread_mutex_lock(&e->lock);
        w->job_status = status;
        w->job = NULL;
        e->n_running--;
        pthread_cond_broadcast(&e->caller_wakes);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}
