#include "ids.h"

#include <float.h>

#include "vocabulary.h"

/* A hash modulo `buckets` without a division: `inverse`, ⌊(2^64 − 1) / buckets⌋, gives the quotient or one less. */
static inline int64_t modulo(uint64_t hash, uint64_t buckets, uint64_t inverse) {
    uint64_t quotient = (uint64_t)((unsigned __int128)hash * inverse >> 64);
    uint64_t rest = hash - quotient * buckets;
    return (int64_t)(rest >= buckets ? rest - buckets : rest);
}

/* TensorFlow's threads take denormal numbers for 0 when they compare. */
static inline float flush(float x) { return x > -FLT_MIN && x < FLT_MIN ? 0.0f : x; }
static inline double flush_double(double x) { return x > -DBL_MIN && x < DBL_MIN ? 0.0 : x; }

/* How many of `edges` are ≤ the value. */
#define COUNT_EDGES(value)                                  \
    const float *base = edges;                              \
    for (int64_t left = n; left > 1;) {                     \
        int64_t half = left / 2;                            \
        base = base[half - 1] <= (value) ? base + half : base; \
        left -= half;                                       \
    }                                                       \
    ids[i] = (base - edges) + (n && base[0] <= (value));

static void bucketize(const bireme_id *step, const elements *source, const int64_t *of, int64_t *ids) {
    const float *edges = step->table;
    const int64_t n = step->count;
    int64_t type = of ? TYPE_I64 : source->type;
    if (of == 0 && type != TYPE_F64 && type != TYPE_F32) of = source->data;
    for (int64_t i = 0; i < source->count; i++) {
        if (type == TYPE_F64) { /* compared exactly */
            double value = flush_double(((const double *)source->data)[i]);
            COUNT_EDGES(value)
        } else { /* integers are compared in FP32 */
            float value = type == TYPE_F32   ? flush(((const float *)source->data)[i])
                          : type == TYPE_I32 ? (float)((const int32_t *)source->data)[i]
                          : type == TYPE_BOOL ? (float)((const uint8_t *)source->data)[i]
                                              : (float)of[i];
            COUNT_EDGES(value)
        }
    }
}

static void find_keys(const bireme_id *step, const int64_t *values, int64_t count, int64_t *ids) {
    const int64_t *keys = step->table, *known = step->more;
    for (int64_t i = 0; i < count; i++) {
        const int64_t *base = keys;
        for (int64_t left = step->count; left > 1;) {
            int64_t half = left / 2;
            base = base[half - 1] < values[i] ? base + half : base;
            left -= half;
        }
        int64_t at = base - keys;
        at += step->count && keys[at] < values[i];
        ids[i] = at < step->count && keys[at] == values[i] ? known[at] : step->fallback;
    }
}

static inline int64_t compute(int64_t function, int64_t x, int64_t c) {
    switch (function) {
    case FN_ADD: return (int64_t)((uint64_t)x + (uint64_t)c);
    case FN_SUB: return (int64_t)((uint64_t)x - (uint64_t)c);
    case FN_RSUB: return (int64_t)((uint64_t)c - (uint64_t)x);
    case FN_MUL: return (int64_t)((uint64_t)x * (uint64_t)c);
    case FN_FLOORDIV: return x / c - (x % c != 0 && (x < 0) != (c < 0));
    case FN_FLOORMOD: { int64_t r = x % c; return r != 0 && (r < 0) != (c < 0) ? r + c : r; }
    case FN_MOD: return x % c;
    case FN_MINIMUM: return x < c ? x : c;
    case FN_MAXIMUM: return x > c ? x : c;
    default: return x;
    }
}

#define COMPUTE(function)                                                                     \
    for (int64_t i = 0; i < count; i++) {                                                     \
        int64_t x = step->narrow ? (int32_t)values[i] : values[i];                            \
        int64_t y = compute(function, x, step->constant);                                     \
        ids[i] = step->narrow ? (int32_t)y : y;                                               \
    }                                                                                         \
    break;

/* The remainder of a hash-like id by a positive constant is what most such steps are: it has its own loop. */
static void floor_modulo(const bireme_id *step, const int64_t *values, int64_t count, int64_t *ids) {
    const int64_t c = step->constant;
    if (c <= 0 || step->narrow) {
        for (int64_t i = 0; i < count; i++) {
            int64_t x = step->narrow ? (int32_t)values[i] : values[i];
            ids[i] = compute(FN_FLOORMOD, x, c);
        }
        return;
    }
    uint64_t all = (uint64_t)c;
    for (int64_t i = 0; i < count; i++) all |= (uint64_t)values[i];
    if (all >> 31) {
        for (int64_t i = 0; i < count; i++) ids[i] = compute(FN_FLOORMOD, values[i], c);
        return;
    }
    /* 31 bits fit FP64 exactly: the quotient is off by one at most, and compilers make vector code of it. */
    const double inverse = 1.0 / (double)c;
    const uint32_t narrow = (uint32_t)c;
    for (int64_t i = 0; i < count; i++) {
        uint32_t x = (uint32_t)values[i];
        uint32_t quotient = (uint32_t)(int32_t)((double)(int32_t)x * inverse);
        int32_t rest = (int32_t)(x - quotient * narrow);
        rest = rest < 0 ? rest + (int32_t)narrow : rest;
        ids[i] = rest >= (int32_t)narrow ? rest - (int32_t)narrow : rest;
    }
}

static void compute_all(const bireme_id *step, const int64_t *values, int64_t count, int64_t *ids) {
    switch (step->function) {
    case FN_ADD: COMPUTE(FN_ADD)
    case FN_SUB: COMPUTE(FN_SUB)
    case FN_RSUB: COMPUTE(FN_RSUB)
    case FN_MUL: COMPUTE(FN_MUL)
    case FN_FLOORDIV: COMPUTE(FN_FLOORDIV)
    case FN_FLOORMOD: floor_modulo(step, values, count, ids); break;
    case FN_MOD: COMPUTE(FN_MOD)
    case FN_MINIMUM: COMPUTE(FN_MINIMUM)
    case FN_MAXIMUM: COMPUTE(FN_MAXIMUM)
    default: COMPUTE(FN_CAST)
    }
}

/* A source's numbers as int64: its own memory, or `room`. */
static const int64_t *whole_numbers(const elements *source, int64_t *room) {
    switch (source->type) {
    case TYPE_I32:
        for (int64_t i = 0; i < source->count; i++) room[i] = ((const int32_t *)source->data)[i];
        return room;
    case TYPE_BOOL:
        for (int64_t i = 0; i < source->count; i++) room[i] = ((const uint8_t *)source->data)[i];
        return room;
    default:
        return source->data;
    }
}

const int64_t *ids_make(const bireme_id *step, const elements *source, const int64_t *of, int64_t *room) {
    const int64_t count = source->count;
    const text *t = source->texts;
    const uint64_t inverse = step->buckets ? ~(uint64_t)0 / step->buckets : 0;
    switch (step->op) {
    case ID_HASH:
        for (int64_t i = 0; i < count; i++)
            room[i] = modulo(farmhash64(t[i].bytes, (size_t)t[i].length), step->buckets, inverse);
        return room;
    case ID_STRONG:
        for (int64_t i = 0; i < count; i++)
            room[i] = modulo(siphash64(t[i].bytes, (size_t)t[i].length, step->key0, step->key1), step->buckets, inverse);
        return room;
    case ID_WORD:
        vocabulary_find(step, t, count, room);
        return room;
    case ID_EQUAL:
        for (int64_t i = 0; i < count; i++)
            room[i] = t[i].length == step->extra && !memcmp(t[i].bytes, step->text, (size_t)step->extra);
        return room;
    case ID_BUCKETIZE:
        bucketize(step, source, of, room);
        return room;
    default:
        break;
    }
    const int64_t *values = of ? of : whole_numbers(source, room);
    if (step->op == ID_KEY) {
        find_keys(step, values, count, room);
        return room;
    }
    if (step->op == ID_COMPUTE) {
        compute_all(step, values, count, room);
        return room;
    }
    return values;
}
