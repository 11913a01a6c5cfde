/* simd.h -- sweeps compiled for several instruction sets; each call uses the best one.
 *
 *     FR_SIMD_RANGE(scale)    static void scale(void *arg, size_t begin, size_t end)
 *     {
 *         ...                 plain C, which the compiler vectorises for each of the sets
 *     }
 *
 * Mark the functions that it calls FR_INLINE. This uses attributes and a branch instead of
 * target_clones, which needs a C library with ifunc and tests the wrong bits in clang 14. Sanitizer
 * builds have one version.
 *
 * All versions give the same bits with any compiler. Products and sums are not contracted
 * (-ffp-contract=off), and no sum is an `omp simd reduction`, whose order the compiler chooses: use
 * FR_SUM. If speed needs fused operations, write them (fmaf) in an FR_SIMD_RANGE_FMA, in whose body
 * has_fma is a constant. Processors without them give other last bits. */
#ifndef FR_BASE_SIMD_H
#define FR_BASE_SIMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __FAST_MATH__
#error "-ffast-math (or -Ofast) lets the compiler change results: build Forerun without it"
#endif

/* The instruction set of the processor, limited by ONEDNN_MAX_CPU_ISA like oneDNN's kernels. */
typedef enum fr__simd_set { FR_SIMD_BASE, FR_SIMD_AVX2, FR_SIMD_AVX512 } fr__simd_set;
fr__simd_set fr__simd(void);

#define FR_INLINE static inline __attribute__((always_inline))

/* Does code for every processor of this architecture have fused operations? */
#if defined(__FP_FAST_FMAF) || defined(__FMA__) || defined(__aarch64__)
#define FR_BASE_HAS_FMA true
#else
#define FR_BASE_HAS_FMA false
#endif

/* types: parameters of the function; call: the same without types; takes: parameters of its body;
 * base and fused: arguments of the body without and with fused operations. All are in
 * parentheses. */
#if defined(__x86_64__) && !defined(FR_SANITIZED)
#define FR_SIMD_AVX2_SET "avx,avx2,fma,bmi,bmi2"
#define FR_SIMD_AVX512_SET FR_SIMD_AVX2_SET ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
#define FR_SIMD_VERSIONS(linkage, name, types, call, takes, base, fused)                           \
    FR_INLINE void name##_body takes;                                                              \
    __attribute__((target(FR_SIMD_AVX512_SET))) static void name##_avx512 types                    \
    {                                                                                              \
        name##_body fused;                                                                         \
    }                                                                                              \
    __attribute__((target(FR_SIMD_AVX2_SET))) static void name##_avx2 types { name##_body fused; } \
    static void name##_base types { name##_body base; }                                            \
    linkage void name types                                                                        \
    {                                                                                              \
        switch (fr__simd()) {                                                                      \
        case FR_SIMD_AVX512: name##_avx512 call; break;                                            \
        case FR_SIMD_AVX2: name##_avx2 call; break;                                                \
        default: name##_base call; break;                                                          \
        }                                                                                          \
    }                                                                                              \
    FR_INLINE void name##_body takes
#else
#define FR_SIMD_VERSIONS(linkage, name, types, call, takes, base, fused) \
    FR_INLINE void name##_body takes;                                    \
    linkage void name types { name##_body base; }                        \
    FR_INLINE void name##_body takes
#endif

/* linkage: static or extern */
#define FR_SIMD(linkage, name, types, call) \
    FR_SIMD_VERSIONS(linkage, name, types, call, types, call, call)
#define FR_SIMD_RANGE(name) \
    FR_SIMD(static, name, (void *arg, size_t begin, size_t end), (arg, begin, end))
#define FR_SIMD_RANGE_FMA(name)                                                              \
    FR_SIMD_VERSIONS(static, name, (void *arg, size_t begin, size_t end), (arg, begin, end), \
                     (void *arg, size_t begin, size_t end, bool has_fma),                    \
                     (arg, begin, end, FR_BASE_HAS_FMA), (arg, begin, end, true))

/* Set `sum`, a float, to the sum of `term` over i in [0, n): term i is added to lane i % 16, then
 * lanes are added by halves. */
enum { FR_SUM_LANES = 16 };
#define FR_SUM(sum, i, n, term)                                                                  \
    do {                                                                                         \
        float fr_lane[FR_SUM_LANES] = {0};                                                       \
        const int64_t fr_whole = (n) / FR_SUM_LANES * FR_SUM_LANES;                              \
        for (int64_t fr_at = 0; fr_at < fr_whole; fr_at += FR_SUM_LANES)                         \
            for (int64_t fr_l = 0; fr_l < FR_SUM_LANES; fr_l++) {                                \
                const int64_t i = fr_at + fr_l;                                                  \
                fr_lane[fr_l] += (term);                                                         \
            }                                                                                    \
        for (int64_t i = fr_whole; i < (n); i++) fr_lane[i - fr_whole] += (term);                \
        for (int fr_half = FR_SUM_LANES / 2; fr_half > 0; fr_half /= 2)                          \
            for (int fr_l = 0; fr_l < fr_half; fr_l++) fr_lane[fr_l] += fr_lane[fr_l + fr_half]; \
        (sum) = fr_lane[0];                                                                      \
    } while (0)

#endif
