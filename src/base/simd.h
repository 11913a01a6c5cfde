/* simd.h -- sweeps compiled for several instruction sets, the best one chosen at load.
 *
 * Mark the outer function FR_SIMD and what it calls FR_INLINE; the loops stay plain C that the
 * compiler vectorises. Compilers without function multiversioning, and sanitizers, get one version.
 */
#ifndef FR_BASE_SIMD_H
#define FR_BASE_SIMD_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(FR_SANITIZED)
/* Levels, not models: "arch=haswell" would match Intel's Haswell alone and leave an AMD core with
 * the default. */
#define FR_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FR_SIMD
#endif
#define FR_INLINE static inline __attribute__((always_inline))

#endif
