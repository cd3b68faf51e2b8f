/* Numbers through chains of scalar operations, and masks as numbers.
 * Part of rows.c: compiled once for every variant. */
#ifndef BIREME_NUMBERS_H
#define BIREME_NUMBERS_H

#include <math.h>

#include "copy.h"
#include "logarithm.h"
#include "masks.h"

INLINE float apply(int64_t op, float x, float c) {
    switch (op) {
    case DO_ADD: return x + c;
    case DO_SUB: return x - c;
    case DO_RSUB: return c - x;
    case DO_MUL: return x * c;
    case DO_DIV: return x / c;
    case DO_MINIMUM: return x < c || x != x ? x : c; /* numpy's: NaN stays NaN */
    case DO_MAXIMUM: return x > c || x != x ? x : c;
    case DO_LOG1P: return log_one_plus(x);
    case DO_LOG: return log_of(x);
    case DO_SQRT: return sqrtf(x);
    case DO_SQUARE: return x * x;
    case DO_ABS: return fabsf(x);
    default: return -x;
    }
}

#define EACH(OP)                                              \
    case OP:                                                  \
        for (int64_t i = 0; i < n; i++) values[i] = apply(OP, values[i], c); \
        break;

static void chain(const bireme_operation *operations, int64_t count, float *values, int64_t n) {
    for (int64_t k = 0; k < count; k++) {
        const float c = (float)operations[k].constant;
        switch (operations[k].op) {
            EACH(DO_ADD) EACH(DO_SUB) EACH(DO_RSUB) EACH(DO_MUL) EACH(DO_DIV) EACH(DO_MINIMUM) EACH(DO_MAXIMUM)
            EACH(DO_LOG1P) EACH(DO_LOG) EACH(DO_SQRT) EACH(DO_SQUARE) EACH(DO_ABS) EACH(DO_NEG)
        default:
            for (int64_t i = 0; i < n; i++) values[i] = tanhf(values[i]);
        }
    }
}

/* `n` numbers of a source, or ids, from element `first` on, as FP32. */
static void read_numbers(const rows_work *w, const bireme_block *b, int64_t first, int64_t n, float *to) {
    if (b->id >= 0) {
        for (int64_t i = 0; i < n; i++) to[i] = (float)w->ids[b->id][first + i];
        return;
    }
    const elements *s = w->sources + b->source;
    switch (s->type) {
    case TYPE_F32: memcpy(to, (const float *)s->data + first, (size_t)n * 4); break;
    case TYPE_F64: for (int64_t i = 0; i < n; i++) to[i] = (float)((const double *)s->data)[first + i]; break;
    case TYPE_I32: for (int64_t i = 0; i < n; i++) to[i] = (float)((const int32_t *)s->data)[first + i]; break;
    case TYPE_BOOL: for (int64_t i = 0; i < n; i++) to[i] = (float)((const uint8_t *)s->data)[first + i]; break;
    default: for (int64_t i = 0; i < n; i++) to[i] = (float)((const int64_t *)s->data)[first + i]; break;
    }
}

INLINE void put_number(char *output, int64_t column, int half, float value) {
    if (half)
        ((uint16_t *)output)[column] = half_of(value);
    else
        ((float *)output)[column] = value;
}

static int numbers(const rows_work *w, const bireme_block *b, int64_t first, int64_t last, char *output) {
    const int64_t size = w->half ? 2 : 4, stride = w->width * size, width = b->width;
    const float limit = (float)w->program->limit;
    float values[CHUNK];
    uint16_t halves[CHUNK];
    for (int64_t e = first * width; e < last * width; e += CHUNK) {
        int64_t n = last * width - e < CHUNK ? last * width - e : CHUNK;
        read_numbers(w, b, e, n, values);
        chain(w->program->operations + b->first_operation, b->operations, values, n);
        int bad = 0;
        for (int64_t i = 0; i < n; i++) bad |= !(fabsf(values[i]) <= limit);
        if (bad) return 0;
        if (width == 1) {
            char *to = output + (e - first) * stride + b->offset * size;
            if (w->half) {
                to_halves(values, halves, n);
                for (int64_t i = 0; i < n; i++, to += stride) *(uint16_t *)to = halves[i];
            } else {
                for (int64_t i = 0; i < n; i++, to += stride) *(float *)to = values[i];
            }
        } else {
            for (int64_t i = 0; i < n; i++) {
                int64_t row = (e + i) / width, column = (e + i) % width;
                put_number(output + (row - first) * stride, b->offset + column, w->half, values[i]);
            }
        }
    }
    return 1;
}

static int mask(const rows_work *w, const bireme_block *b, int64_t first, int64_t last, char *output) {
    const int64_t size = w->half ? 2 : 4, length = w->sources[b->source].length;
    if (length != b->width || !tests_fit(w, b, length)) return 0;
    for (int64_t row = first; row < last; row++)
        for (int64_t i = 0; i < length; i++) {
            int pass = passes(w, w->program->tests + b->first_test, b->tests, row * length + i);
            put_number(output + (row - first) * w->width * size, b->offset + i, w->half, pass ? 1.0f : 0.0f);
        }
    return 1;
}

#endif
