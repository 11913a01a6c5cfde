/* philox.h -- counter-based random numbers (Philox4x32-10, Salmon et al., SC 2011).
 *
 * A number is a pure function of (seed, stream, a, b). It does not depend on the worker or on the
 * order of draws. Each purpose has its own streams. */
#ifndef FR_BASE_PHILOX_H
#define FR_BASE_PHILOX_H

#include <stdint.h>

/* High byte of a stream id; the rest is the node, parameter or epoch. */
enum fr__stream {
    FR_STREAM_INIT = 1,
    FR_STREAM_DROPOUT,
    FR_STREAM_SHUFFLE,
    FR_STREAM_AUGMENT,
    FR_STREAM_SYNTHETIC,
    FR_STREAM_SAMPLE,
    FR_STREAM_JITTER
};

static inline void fr__philox_round(uint32_t c[4], const uint32_t k[2])
{
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k[0], n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k[1];
    c[0] = n0, c[1] = (uint32_t)p1, c[2] = n2, c[3] = (uint32_t)p0;
}

/* Replace the counter (4 words) by 4 random words, using the key (2 words). */
static inline void fr__philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    uint32_t k[2] = {k0, k1};
    for (int i = 0; i < 10; i++) {
        fr__philox_round(c, k);
        k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
    }
}

/* Four words for position (a, b) of stream `purpose`/`id` under `seed`.
 * b may use 32 bits (a sample in a mini-batch), a all 64 (element or step). */
static inline void fr__random4(uint64_t seed, enum fr__stream purpose, uint32_t id, uint64_t a,
                               uint32_t b, uint32_t out[4])
{
    out[0] = (uint32_t)a, out[1] = (uint32_t)(a >> 32), out[2] = b,
    out[3] = ((uint32_t)purpose << 24) ^ id;
    fr__philox(out, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* [0, 1) with 24 bits. */
static inline float fr__unit_float(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

#endif
