/* FP16 and FP32, rounded to nearest even as numpy does, by the processor where it can. */
#ifndef BIREME_HALF_H
#define BIREME_HALF_H

#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static inline uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline float bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

#if defined(__F16C__)

static inline uint16_t half_of(float x) { return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), 0), 0); }
static inline float float_of(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }

#elif defined(__aarch64__)

static inline uint16_t half_of(float x) {
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}
static inline float float_of(uint16_t h) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

#else

static inline float float_of(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7FFF;
    if (rest >= 0x7C00) return bits_float(sign | 0x7F800000 | (rest & 0x3FF) << 13);
    /* 2^112 moves the exponent from FP16's place to FP32's, denormals included. */
    float value = bits_float(rest << 13) * 0x1p112f;
    return bits_float(sign | float_bits(value));
}

static inline uint16_t half_of(float x) {
    uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (rest >> 13 & 0x3FF));
    if (rest >= 0x47800000) return (uint16_t)(sign | 0x7C00);
    if (rest < 0x38800000) { /* denormal in FP16: let an addition round it */
        float shifted = bits_float(rest) + 0.5f;
        return (uint16_t)(sign | (float_bits(shifted) - float_bits(0.5f)));
    }
    rest += 0xFFF + (rest >> 13 & 1);
    return (uint16_t)(sign | (rest - 0x38000000) >> 13);
}

#endif

/* n FP32 numbers → FP16. */
static inline void to_halves(const float *from, uint16_t *to, int64_t n) {
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), 0));
#endif
#if defined(__F16C__) && defined(__AVX__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
#elif defined(__aarch64__)
    for (; i + 4 <= n; i += 4) vst1_u16(to + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
#endif
    for (; i < n; i++) to[i] = half_of(from[i]);
}

/* n FP16 numbers → FP32. */
static inline void to_floats(const uint16_t *from, float *to, int64_t n) {
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + i))));
#endif
#if defined(__F16C__) && defined(__AVX__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
#elif defined(__aarch64__)
    for (; i + 4 <= n; i += 4) vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + i))));
#endif
    for (; i < n; i++) to[i] = float_of(from[i]);
}

#endif
