/* simd.c -- the instruction set for sweeps, detected once. */
#include "base/simd.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <strings.h>

/* oneDNN's names. Several share a prefix: AVX2_VNNI, AVX512_CORE_BF16. */
static fr__simd_set allowed(void)
{
    const char *cap = getenv("ONEDNN_MAX_CPU_ISA");
    if (!cap) cap = getenv("DNNL_MAX_CPU_ISA");
    if (!cap) return FR_SIMD_AVX512;
    if (strcasecmp(cap, "SSE41") == 0 || strcasecmp(cap, "AVX") == 0) return FR_SIMD_BASE;
    return strncasecmp(cap, "AVX2", 4) == 0 ? FR_SIMD_AVX2 : FR_SIMD_AVX512;
}

/* The sets of FR_SIMD_AVX2_SET and FR_SIMD_AVX512_SET; the system must also save the registers. */
static fr__simd_set present(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    const bool has_avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl");
    if (has_avx2) return has_avx512 ? FR_SIMD_AVX512 : FR_SIMD_AVX2;
#endif
    return FR_SIMD_BASE;
}

fr__simd_set fr__simd(void)
{
    static _Atomic int known; /* the result plus 1 */
    int found = atomic_load_explicit(&known, memory_order_relaxed);
    if (found == 0) {
        const fr__simd_set has = present(), may = allowed();
        found = 1 + (int)(has < may ? has : may);
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return (fr__simd_set)(found - 1);
}
