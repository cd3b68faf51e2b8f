/* Natural logarithms of FP32 numbers, computed in FP64 so that what is rounded to FP32 is right to the last bit
 * but for rare ties, and written without branches so that compilers turn loops over them into vector code. */
#ifndef BIREME_LOGARITHM_H
#define BIREME_LOGARITHM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* log y for a positive, finite, normal y. */
static inline double log_normal(double y) {
    uint64_t bits;
    memcpy(&bits, &y, 8);
    /* y = m · 2^e with m in [√½, √2): subtracting √½'s bits makes the exponent field turn over there. */
    uint64_t from = bits - 0x3FE6A09E667F3BCDu;
    uint64_t exponent = from >> 52; /* e + 4096 · (1 where e is negative), as an unsigned field of 12 bits */
    uint64_t mantissa_bits = (from & 0xFFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu;
    double m;
    memcpy(&m, &mantissa_bits, 8);
    /* Field → double: as the low bits of 2^52, signed by flipping its top bit. */
    uint64_t magic = (exponent ^ 0x800u) | 0x4330000000000000u;
    double e;
    memcpy(&e, &magic, 8);
    e -= 0x1p52 + 2048.0;
    /* log m = 2 artanh s, s = (m − 1) / (m + 1), |s| ≤ 0.1716: the series to s^15 is exact to 1e-14. */
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double series = 1.0 / 15;
    series = series * z + 1.0 / 13;
    series = series * z + 1.0 / 11;
    series = series * z + 1.0 / 9;
    series = series * z + 1.0 / 7;
    series = series * z + 1.0 / 5;
    series = series * z + 1.0 / 3;
    return e * 0.69314718055994530942 + 2.0 * (s + s * z * series);
}

/* What a logarithm is outside the positive finite numbers. */
static inline float log_edges(double y, double found) {
    double result = y > 0 ? found : y == 0 ? -INFINITY : NAN;
    return (float)(y < INFINITY ? result : y);
}

static inline float log_of(float x) { return log_edges(x, log_normal(x)); }

static inline float log_one_plus(float x) {
    double wide = x, y = 1.0 + wide;
    /* 1 + x forgets the last bits of a small x; there the series is short. */
    double small = wide - wide * wide * (0.5 - wide * (1.0 / 3 - wide * 0.25));
    double magnitude = fabs(wide);
    double found = magnitude < 1e-4 ? small : log_normal(y);
    float result = log_edges(y, found);
    return x == 0.0f ? x : result; /* −0 stays −0 */
}

#endif
