/* device.h -- operations on device memory for the modules above the backends. They use these calls
 * and those of <forerun/backend.h>, nothing else.
 *
 * A device has one queue: calls, kernels included, take effect in the order of the calls, and may
 * return earlier. None of them allocates. When a call returns, its result in host memory is
 * complete, and host memory that it read may be changed. Another device of the same backend and
 * process, a "peer", may read a block after fr__device_wait for the call that wrote it, or after
 * fr_device_sync. These two also return the failures of calls without a status.
 *
 * The device's thread makes the calls. While it is idle another thread may upload, download and
 * copy; during a kernel any thread that runs it may sweep. */
#ifndef FR_BACKEND_DEVICE_H
#define FR_BACKEND_DEVICE_H

#include <forerun/backend.h>
#include <forerun/optim.h>

/* Whether the host may read and write the device's blocks as its own memory, so that copies between
 * the two are unnecessary. */
bool fr__device_is_host(const fr_device *dev);

/* A mark is a point in the queue, behind all calls made so far. Wait until those calls are done. A
 * backend that completes every call before it returns, as processors do, needs neither slot. */
typedef uint64_t fr__mark;
fr__mark fr__device_mark(fr_device *dev);
fr_status fr__device_wait(fr_device *dev, fr__mark mark);

/* Moving memory takes bytes, whatever is in it. from: a block, a peer's too, that does not overlap
 * `to`; NULL: zeros. */
fr_status fr__device_copy(fr_device *dev, void *to, const void *from, size_t bytes);

/* to[i] = from[i] over n elements of FR_F32 or FR_BF16; the two do not overlap. To bf16 it rounds
 * to the nearest, ties to even; a NaN stays one. */
fr_status fr__device_convert(fr_device *dev, fr_dtype to_type, void *to, fr_dtype from_type,
                             const void *from, size_t n);

/* y += x over n elements of FR_F32 or FR_BF16: sums of floats, rounded to the type. */
void fr__device_add(fr_device *dev, fr_dtype type, void *y, const void *x, size_t n);

/* Other linear passes over two blocks, of floats, as all that follow: weights, their gradients and
 * the state of optimizers are FR_F32. */
typedef enum fr__blend {
    FR_BLEND_SCALE,    /* y = x * by */
    FR_BLEND_DIVIDE,   /* y = x / by */
    FR_BLEND_ADD_PART, /* y += x / by */
    FR_BLEND_REST      /* y = x - y */
} fr__blend;
void fr__device_blend(fr_device *dev, fr__blend kind, float *y, const float *x, float by, size_t n);

/* One pass of an optimizer: step with predictions, or coef NULL: predictions alone. These may be
 * bf16. */
void fr__device_sweep(fr_device *dev, const fr_optimizer *opt, const fr_optim_coef *coef,
                      const fr_sweep *sweep);

/* x (rows, cols), rows ld floats apart, keeps its singular vectors, and its singular values become
 * about 1 (0.7 to 1.2): five steps of a Newton-Schulz iteration from x / max(|x|, 1e-7),
 *     A = x x^T,  x = (a + b A + c A A) x       rows > cols: A = x^T x, x = x (a + b A + c A A)
 * scratch: fr__orthogonalise_floats. The result does not depend on the number of threads. */
void fr__device_orthogonalise(fr_device *dev, float *x, const fr_matrix *shape, float *scratch);
size_t fr__orthogonalise_floats(const fr_matrix *shape);
double fr__orthogonalise_work(const fr_matrix *shape); /* multiply-adds */

/* sums[i], in host memory: the squares of x[spans[i].offset ..], as fr__sum_squares_block adds
 * them; spans of up to FR_NORM_BLOCK floats. */
typedef struct fr__span {
    size_t offset, count;
} fr__span;
void fr__device_squares(fr_device *dev, const float *x, const fr__span *spans, size_t n,
                        double *sums);

/* to[i] = sum of from[0 .. n - 1][i], blocks of peers, along a binary tree over the n:
 * sum(a, s) = sum(a, 2s) + sum(a + s, 2s), and from[a] alone if a + s is none. The bits do not
 * depend on how a row is cut into calls. `to` may be one of `from`, but not overlap one in part. */
#define FR_TREE_MEMBERS 1024 /* the largest n */
void fr__device_tree_sum(fr_device *dev, float *to, const float *const *from, int n, size_t count);

/* host[i] = from[i * stride], i < n, of FR_F32 or FR_BF16. */
fr_status fr__device_pick(fr_device *dev, float *host, fr_dtype type, const void *from, size_t n,
                          size_t stride);

/* The same tree on host memory, without a device (host_tree.c). */
void fr__tree_sum(float *to, const float *const *from, int n, size_t count);

/* fr_program_read_param and fr_program_write_param of a block of any float type, the weights of
 * passes for example. scratch: memory of the device, as many floats as the placement has elements;
 * not used with FR_F32. */
fr_status fr__program_read_typed(fr_program *p, fr_dtype type, const void *block, int placement,
                                 float *plain, float *scratch);
fr_status fr__program_write_typed(fr_program *p, fr_dtype type, void *block, int placement,
                                  const float *plain, float *scratch);

#endif
