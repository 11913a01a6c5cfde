/* cost.h -- what things cost: a profile (the nodes of a model, measured), a cluster (devices and
 * what joins them), and the time that messages take on links that others use too.
 *
 * Simulation and emulation use the same numbers: an fr_timing gives all durations, an
 * fr_links keeps account of who uses a link until when. Times are seconds, sizes bytes. */
#ifndef FORERUN_COST_H
#define FORERUN_COST_H

#include <forerun/graph.h>
#include <forerun/io.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- profile ------------------------------------------------------------------------------------
 * Times are those of one micro-batch of `batch` samples on the machine it was measured on; update:
 * once a mini-batch. */
typedef struct fr_profile_node {
    const char *name;  /* of the graph's node, or of the file's */
    const char *about; /* operator and sizes, for people */
    double forward_s;
    double backward_s;                  /* both gradients at once */
    double back_input_s, back_weight_s; /* apart; NaN, or both 0: halves of backward_s */
    double update_s;
    /* Once a mini-batch, before its first forward and its first backward: getting the weights,
     * where that means to predict them. */
    double fetch_forward_s, fetch_backward_s;
    int64_t output_bytes; /* of a micro-batch: what crosses if it is cut here */
    int64_t kept_bytes;   /* of a micro-batch, from its forward to its backward */
    int64_t param_bytes;  /* trained */
    int64_t fixed_bytes;  /* held beside, whatever the micro-batch: running statistics, weights in
                             another layout */
    /* Of a micro-batch, in the workspace: values alive while the node runs, scratch of its kernels,
     * and copies where the model is cut behind it. 0 in all nodes: not known (workspace_bytes). */
    int64_t values_bytes, scratch_bytes, edge_bytes;
    double flops; /* of a micro-batch, forward and backward; 0: not known */
    int n_inputs;
    const int *inputs; /* nodes, all smaller */
    bool is_input;     /* data fed from outside: belongs to no stage's work */
} fr_profile_node;

typedef struct fr_profile {
    const char *model, *machine; /* machine: "oneDNN 2.6.3, avx2, 1 thread; 2 at once" */
    int batch;                   /* samples of a micro-batch; 0: the file does not say */
    int n_nodes;
    fr_profile_node *nodes;   /* in topological order */
    int n_micro;              /* of the mini-batch below */
    double step_s, accounted; /* a mini-batch, and the share of its nodes; 0: not measured */
    double jitter;          /* standard deviation of a pass's time over its mean; 0: not measured */
    double workspace_bytes; /* of a worker that has the whole model */
    double state_per_weight; /* optimizer numbers a weight: 1 for momentum */
    fr_dtype precision;      /* of the weights that passes read: FR_F32 or FR_BF16 */
    /* The same nodes with micro-batches of other sizes, none of which has sizes of its own. */
    int n_sizes;
    const struct fr_profile **sizes;
    void *arena;
} fr_profile;

FR_API void fr_profile_free(const fr_profile *p);
/* Checked, with memory of its own: so a profile that was filled in by hand (arena NULL, names NULL
 * for "node<index>") becomes one that the calls below take. It is const from then on, and any
 * thread may read it. The struct is public so that programs can fill in and read the nodes. */
FR_API FR_MUST_USE fr_status fr_profile_copy(fr_ctx *ctx, const fr_profile *p,
                                             const fr_profile **out);
/* Parts of one model side by side, as fr_probe_nodes measures them, as the whole. */
FR_API FR_MUST_USE fr_status fr_profile_join(fr_ctx *ctx, int n, const fr_profile *const *parts,
                                             const fr_profile **out);
/* Profiles of one model, each with micro-batches of another size, as one that knows all; the first
 * is the one that readers see. Sizes that they have gathered themselves are left out. */
FR_API FR_MUST_USE fr_status fr_profile_gather(fr_ctx *ctx, int n, const fr_profile *const *each,
                                               const fr_profile **out);
/* JSON, or PipeDream's text (told apart by the first character). Errors name file and line. */
FR_API FR_MUST_USE fr_status fr_profile_read(fr_ctx *ctx, const char *path, const fr_profile **out);
FR_API FR_MUST_USE fr_status fr_profile_write_json(fr_ctx *ctx, const fr_profile *p,
                                                   const char *path); /* "-": stdout */
FR_API FR_MUST_USE fr_status fr_profile_write_pipedream(fr_ctx *ctx, const fr_profile *p,
                                                        const char *path);
/* Times and bytes of another micro-batch, and no others: as measured, straight between the next
 * smaller and the next larger size, or outside of those that are known in proportion to the
 * nearest; fr_profile_knows: not in proportion. Small micro-batches cost more than their share
 * (weights are read for one sample as for many), so proportion flatters them. */
FR_API bool fr_profile_knows(const fr_profile *p, int batch);
FR_API FR_MUST_USE fr_status fr_profile_scaled(fr_ctx *ctx, const fr_profile *p, int batch,
                                               const fr_profile **out);

/* --- the cost of a stage --------------------------------------------------------------------- */

/* Share of a stage's gradients that is final after a share of its last backward, without recompute:
 * points from (0, 0) to (1, 1), both ascending; n 0: in proportion. */
typedef struct fr_curve { /* straight between points; equal times: a step */
    int n;
    const double *time, *bytes;
} fr_curve;
FR_API double fr_curve_time(const fr_curve *c, double bytes); /* earliest share of time */

/* On a device of speed 1, a micro-batch; step: once a mini-batch, and whether it is fused into the
 * last backward or comes after it, it takes so long. */
typedef struct fr_stage_cost {
    double forward, backward, back_input, back_weight, step;
    double recompute; /* included in backward and back_input: R, which waits for no gradient */
    double fetch_forward, fetch_backward; /* once a mini-batch, as in a profile */
    int64_t param_bytes;                  /* what replicas add up */
    int64_t kept_bytes, fixed_bytes;      /* of a slot; of buffers and caches */
    int64_t workspace_bytes;              /* of a worker; it has one for all its stages */
    fr_curve final;
} fr_stage_cost;

/* Nodes first .. last - 1. Memory of the curve is the profile's. recompute: [node of the profile];
 * NULL: none. A backward runs those again of which it needs something, directly or for others. */
FR_API FR_MUST_USE fr_status fr_profile_stage(fr_ctx *ctx, const fr_profile *p, int first, int last,
                                              const bool *recompute, fr_stage_cost *out);
/* Which stages talk to which, and bytes of a micro-batch on each link; as fr_graph_links does it.
 * cuts: [n_stages - 1] nodes. Room for n * (n - 1) / 2 in each list. */
FR_API FR_MUST_USE fr_status fr_profile_links(fr_ctx *ctx, const fr_profile *p, int n_stages,
                                              const int *cuts, int *n_forward,
                                              fr_stage_link *forward, size_t *forward_bytes,
                                              int *n_backward, fr_stage_link *backward,
                                              size_t *backward_bytes);

/* --- cluster ------------------------------------------------------------------------------------
 * Devices at the leaves of a tree of groups. Inside a group its children (devices or groups) are
 * joined by a switch, each with a port of its own for each direction, or by one bus that they
 * share. A message goes up to the lowest group that holds both ends and down again, through a port
 * (or the bus) of every group on its way. */
typedef struct fr_cluster_device {
    const char *name;
    double speed;   /* times the machine of the profile; 0: by flops */
    double flops;   /* that it achieves */
    int64_t memory; /* 0: any */
    int group;      /* that it hangs on */
} fr_cluster_device;

typedef struct fr_cluster_group {
    const char *name;
    double bandwidth; /* bytes/s of a port in each direction, or of the bus; 0: free */
    double latency;
    bool is_shared; /* a bus */
    int parent;     /* group; -1: the root */
} fr_cluster_group;

typedef struct fr_cluster {
    const char *name, *path;
    double overhead_s; /* of any instruction, beside its work: kernels are launched one by one */
    int n_devices, n_groups;
    fr_cluster_device *devices; /* neighbours side by side */
    fr_cluster_group *groups;   /* parents first */
    void *arena;
} fr_cluster;

FR_API const fr_key *fr_cluster_keys(void); /* of such a file, ended by a NULL path */
FR_API FR_MUST_USE fr_status fr_cluster_read(fr_ctx *ctx, const char *path, fr_cluster **out);
FR_API FR_MUST_USE fr_status fr_cluster_write(fr_ctx *ctx, const fr_cluster *c,
                                              const char *path); /* as above */
/* n devices of speed 1 that share nothing; bandwidth 0: links are free. */
FR_API FR_MUST_USE fr_status fr_cluster_flat(fr_ctx *ctx, int n, double bandwidth, double latency,
                                             fr_cluster **out);
FR_API void fr_cluster_free(fr_cluster *c);
/* Speed against the machine of a profile (0 flops in the profile: a device must say its speed; NaN:
 * it does not). */
FR_API double fr_cluster_speed(const fr_cluster *c, int device, const fr_profile *p);

/* --- links in use ---------------------------------------------------------------------------- */

typedef struct fr_links fr_links;
FR_API FR_MUST_USE fr_status fr_links_create(fr_ctx *ctx, const fr_cluster *c, fr_links **out);
FR_API void fr_links_free(fr_links *l);
FR_API void fr_links_reset(fr_links *l); /* nothing is under way, the clock at 0 */
/* A message is ready at `ready`; a port or bus serves one after the other, in the order of calls.
 * Returns when the receiver has it. Same device: at once. */
FR_API double fr_links_send(fr_links *l, int from, int to, size_t bytes, double ready);
/* All of n devices have a block ready at `ready`; returns when all have the sum. Along a ring in
 * the order of devices, each sends 2 (n - 1) / n of the block to the next. */
FR_API double fr_links_sum(fr_links *l, int n, const int *devices, size_t bytes, double ready);
/* Durations of the two on idle links. */
FR_API double fr_links_send_time(const fr_links *l, int from, int to, size_t bytes);
FR_API double fr_links_sum_time(const fr_links *l, int n, const int *devices, size_t bytes);

/* --- how long everything takes --------------------------------------------------------------- */

/* A sum over replicas goes bucket by bucket, from the end of the block: links get one when all
 * replicas have handed it in and the one before it is through (else messages of the pipeline would
 * wait for all of them). */
#define FR_BUCKET_BYTES (4u << 20)

typedef struct fr_timing {
    const fr_stage_cost *cost;                    /* [stage] */
    const double *speed;                          /* [worker]; NULL: 1 */
    const fr_cluster *cluster;                    /* NULL: transfers are free */
    const int *device_of;                         /* [worker], of the cluster */
    double overhead_s;                            /* of any instruction, beside */
    const size_t *forward_bytes, *backward_bytes; /* [link of the schedule]: of a micro-batch */
} fr_timing;

#ifdef __cplusplus
}
#endif
#endif
