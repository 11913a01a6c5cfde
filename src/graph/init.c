/* init.c -- initial values. Number i of a parameter comes from block i/4 of the parameter's own
 * random stream, so it depends neither on the worker and the order of filling nor on other
 * parameters. Normal numbers are made by the method of Box and Muller (1958), in double
 * precision. */
#include <forerun/graph.h>

#include "base/philox.h"

#include <math.h>

/* Four normal numbers from four words. */
static void normal4(const uint32_t word[4], double z[4])
{
    const double tau = 6.283185307179586;
    for (int i = 0; i < 4; i += 2) {
        double radius = sqrt(-2 * log(((double)word[i] + 1) * 0x1p-32));
        double angle = tau * (double)word[i + 1] * 0x1p-32;
        z[i] = radius * cos(angle);
        z[i + 1] = radius * sin(angle);
    }
}

/* Four uniform numbers in (-1, 1), symmetric about zero. */
static void uniform4(const uint32_t word[4], double z[4])
{
    for (int i = 0; i < 4; i++) z[i] = 2 * ((double)(word[i] >> 8) + 0.5) * 0x1p-24 - 1;
}

void fr_graph_init_range(const fr_graph *g, int param, uint64_t seed, int64_t first, int64_t n,
                         float *values)
{
    const fr_param *p = fr_graph_param(g, param);
    if (p->tied_to >= 0) {
        param = p->tied_to;
        p = fr_graph_param(g, param);
    }
    if (p->init.kind == FR_INIT_ZEROS || p->init.kind == FR_INIT_ONES) {
        float value = p->init.kind == FR_INIT_ONES ? 1 : 0;
        for (int64_t i = 0; i < n; i++) values[i] = value;
        return;
    }
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t word[4];
        double z[4];
        fr__random4(seed, FR_STREAM_INIT, (uint32_t)param, (uint64_t)(first + i) / 4, 0, word);
        if (p->init.kind == FR_INIT_NORMAL)
            normal4(word, z);
        else
            uniform4(word, z);
        for (int k = 0; k < 4 && i + k < n; k++) values[i + k] = (float)(p->init.scale * z[k]);
    }
}

void fr_graph_init_param(const fr_graph *g, int param, uint64_t seed, float *values)
{
    fr_graph_init_range(g, param, seed, 0, fr_shape_count(&fr_graph_param(g, param)->shape),
                        values);
}
