/* backend.h -- the backend that a test runs on when any will do, and plain data on its devices. */
#ifndef FR_TEST_SUPPORT_BACKEND_H
#define FR_TEST_SUPPORT_BACKEND_H

#include <forerun/backend.h>

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* The one named by FR_BACKEND, or `usual`. */
static inline const fr_backend *test_backend(const char *usual)
{
    const char *name = getenv("FR_BACKEND");
    const fr_backend *found = fr_backend_find(name ? name : usual);
    if (!found) fail_msg("FR_BACKEND=%s: no such backend", name ? name : usual);
    return found;
}

/* Loops go over all backends, or over the one of FR_BACKEND: a run without it has the others.
 * ThreadSanitizer does not see through OpenMP, so `ref` is the only one there. */
static inline bool test_uses(const fr_backend *backend)
{
#ifdef __SANITIZE_THREAD__
    const char *only = "ref";
#else
    const char *only = getenv("FR_BACKEND");
#endif
    return !only || strcmp(fr_backend_name(backend), only) == 0;
}
#define FOR_EACH_BACKEND(b)                                           \
    for (const fr_backend *const *b = fr_backend_list(); *(b); (b)++) \
        if (test_uses(*(b)))

static inline float *device_floats(fr_device *dev, size_t n)
{
    void *at;
    assert_int_equal(fr_device_alloc(dev, n * sizeof(float), "a block", &at), FR_OK);
    return at;
}

static inline void device_put(fr_device *dev, float *to, const float *host, size_t n)
{
    assert_int_equal(fr_device_upload(dev, to, host, n * sizeof(float)), FR_OK);
}

static inline void device_get(fr_device *dev, float *host, const float *from, size_t n)
{
    assert_int_equal(fr_device_download(dev, host, from, n * sizeof(float)), FR_OK);
}

/* A copy in host memory; free it. */
static inline float *device_copy(fr_device *dev, const float *from, size_t n)
{
    float *host = malloc((n + 1) * sizeof *host);
    assert_non_null(host);
    device_get(dev, host, from, n);
    return host;
}

/* Whether blocks of two devices hold the same bits. */
static inline bool device_same(fr_device *x, const float *a, fr_device *y, const float *b, size_t n)
{
    float *left = device_copy(x, a, n), *right = device_copy(y, b, n);
    bool is_same = memcmp(left, right, n * sizeof *left) == 0;
    free(left);
    free(right);
    return is_same;
}

#endif
