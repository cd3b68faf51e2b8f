/* Which variants this processor can run, asked of the processor itself.
 *
 * Not __builtin_cpu_supports: with PyPI's ziglang it answers 0 to everything, without a word, and linking it
 * brings zig's own logf and expf in place of the C library's, whose results are others.
 */
#ifndef BIREME_CPU_H
#define BIREME_CPU_H

enum { CPU_BASELINE = 0, CPU_AVX2 = 1, CPU_AVX512 = 2 };

#if defined(__x86_64__)
#include <cpuid.h>

/* Register sets that the operating system saves (XCR0); 0 where it cannot be asked. */
static inline unsigned cpu_saved(unsigned leaf1_ecx) {
    if (!(leaf1_ecx & 1u << 27)) return 0; /* OSXSAVE */
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    return low;
}

/* The highest variant; each needs all that its -m flags in bireme/native/flags.py allow the compiler to use. */
static inline int cpu_best(void) {
    const unsigned fma = 1u << 12, movbe = 1u << 22, avx = 1u << 28, f16c = 1u << 29;
    const unsigned bmi1 = 1u << 3, avx2 = 1u << 5, bmi2 = 1u << 8, lzcnt = 1u << 5;
    const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* F, DQ, CD, BW, VL */
    const unsigned ymm = 0x6, zmm = 0xe6;
    unsigned a, b, c, d, features, more, extended = 0;
    if (!__get_cpuid(1, &a, &b, &features, &d)) return CPU_BASELINE;
    if (!__get_cpuid_count(7, 0, &a, &more, &c, &d)) return CPU_BASELINE;
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) extended = c;
    const unsigned saved = cpu_saved(features), needed = fma | avx | f16c;
    if ((saved & ymm) != ymm || (features & needed) != needed || !(more & avx2)) return CPU_BASELINE;
    const unsigned bits = bmi1 | bmi2 | avx512;
    if ((saved & zmm) != zmm || (more & bits) != bits) return CPU_AVX2;
    return features & movbe && extended & lzcnt ? CPU_AVX512 : CPU_AVX2;
}
#else
static inline int cpu_best(void) { return CPU_BASELINE; }
#endif

#endif
