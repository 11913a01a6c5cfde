/* sha256.c -- SHA-256 as in FIPS 180-4, sections 4.1.2, 5 and 6.2. The eight working variables
 * keep their places and the roles rotate, so eight rounds are written out and nothing is moved. */
#include "io/sha256.h"

#include <string.h>

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }
static inline uint32_t big0(uint32_t x) { return rotr(x, 2) ^ rotr(x, 13) ^ rotr(x, 22); }
static inline uint32_t big1(uint32_t x) { return rotr(x, 6) ^ rotr(x, 11) ^ rotr(x, 25); }
static inline uint32_t small0(uint32_t x) { return rotr(x, 7) ^ rotr(x, 18) ^ x >> 3; }
static inline uint32_t small1(uint32_t x) { return rotr(x, 17) ^ rotr(x, 19) ^ x >> 10; }
static inline uint32_t choose(uint32_t x, uint32_t y, uint32_t z) { return z ^ (x & (y ^ z)); }
static inline uint32_t majority(uint32_t x, uint32_t y, uint32_t z)
{
    return (x & y) | (z & (x | y));
}

static inline uint32_t load_big_endian(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

#define ROUND(a, b, c, d, e, f, g, h, i)                          \
    do {                                                          \
        uint32_t t = h + big1(e) + choose(e, f, g) + k[i] + w[i]; \
        d += t;                                                   \
        h = t + big0(a) + majority(a, b, c);                      \
    } while (0)

static void compress(uint32_t state[8], const unsigned char *data, size_t n_blocks)
{
    uint32_t w[64];
    for (; n_blocks > 0; n_blocks--, data += 64) {
        for (int i = 0; i < 16; i++) w[i] = load_big_endian(data + 4 * i);
        for (int i = 16; i < 64; i++)
            w[i] = small1(w[i - 2]) + w[i - 7] + small0(w[i - 15]) + w[i - 16];
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        for (int i = 0; i < 64; i += 8) {
            ROUND(a, b, c, d, e, f, g, h, i);
            ROUND(h, a, b, c, d, e, f, g, i + 1);
            ROUND(g, h, a, b, c, d, e, f, i + 2);
            ROUND(f, g, h, a, b, c, d, e, i + 3);
            ROUND(e, f, g, h, a, b, c, d, i + 4);
            ROUND(d, e, f, g, h, a, b, c, i + 5);
            ROUND(c, d, e, f, g, h, a, b, i + 6);
            ROUND(b, c, d, e, f, g, h, a, i + 7);
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

void fr__sha256_init(fr_sha256 *s)
{
    *s = (fr_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void fr__sha256_update(fr_sha256 *s, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    size_t used = s->bytes % 64;
    s->bytes += bytes;
    if (used > 0) {
        size_t part = bytes < 64 - used ? bytes : 64 - used;
        if (part == 0) return;
        memcpy(s->block + used, from, part);
        if (used + part < 64) return;
        compress(s->state, s->block, 1);
        from += part, bytes -= part;
    }
    compress(s->state, from, bytes / 64);
    if (bytes % 64) memcpy(s->block, from + bytes / 64 * 64, bytes % 64);
}

void fr__sha256_final(fr_sha256 *s, char hex[65])
{
    static const unsigned char padding[64] = {0x80};
    static const char digits[] = "0123456789abcdef";
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(s->bytes * 8 >> (56 - 8 * i));
    /* A one bit, zeros up to 8 bytes before the end of a block, the length in bits. */
    fr__sha256_update(s, padding, 1 + (119 - s->bytes % 64) % 64);
    fr__sha256_update(s, length, sizeof length);
    for (int i = 0; i < 64; i++) hex[i] = digits[s->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    hex[64] = '\0';
}
