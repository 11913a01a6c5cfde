/* isa.c -- the name of the instruction set that oneDNN uses.
 *
 * oneDNN describes it by bits: a set includes those before it. The same bits name other sets on
 * another architecture, and newer versions and processors add bits. A set that is not in the table
 * gets the name of the largest one that it includes. */
#include "backend/cpu/cpu.h"

#include <stdio.h>

static const struct {
    unsigned bits;
    const char *name;
} sets[] = {
    /* a set comes after those it includes */
    {0, "generic code"},
#if defined(__x86_64__)
    {dnnl_cpu_isa_sse41, "sse4.1"},
    {dnnl_cpu_isa_avx, "avx"},
    {dnnl_cpu_isa_avx2, "avx2"},
    {dnnl_cpu_isa_avx2_vnni, "avx2+vnni"},
    {dnnl_cpu_isa_avx2_vnni | 0x10, "avx2+vnni2"},
    {dnnl_cpu_isa_avx512_core, "avx512"},
    {dnnl_cpu_isa_avx512_core_vnni, "avx512+vnni"},
    {dnnl_cpu_isa_avx512_core_bf16, "avx512+bf16"},
    {0x1ef, "avx512+fp16"}, /* also avx10.1; versions before 3.0 have no name for it */
    {dnnl_cpu_isa_avx512_core_amx, "avx512+amx"},
    {0x1fef, "avx512+amx+fp16"},
#elif defined(__aarch64__)
    {0x1, "asimd"},      {0x3, "sve128"}, {0x7, "sve256"}, {0x27, "sve512"},
#endif
};

void fr__isa_name(unsigned bits, char *text, size_t room)
{
    size_t best = 0;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if ((sets[i].bits & bits) == sets[i].bits) best = i;
    }
    snprintf(text, room, "%s%s", sets[best].name, sets[best].bits == bits ? "" : " or later");
}

void fr__cpu_instructions(char *text, size_t room)
{
    fr__isa_name(dnnl_get_effective_cpu_isa(), text, room);
}

bool fr__cpu_computes_bf16(void)
{
#if defined(__x86_64__)
    const unsigned bits = dnnl_cpu_isa_avx512_core_bf16;
    return (dnnl_get_effective_cpu_isa() & bits) == bits;
#else
    return false;
#endif
}
