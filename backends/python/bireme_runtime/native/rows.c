/* The kernel proper; see rows.h. Compiled with -DVARIANT=…: nothing here may be visible under another name. */
#include "rows.h"

#include <math.h>
#include <string.h>

#include "half.h"
#include "logarithm.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define INLINE static inline __attribute__((always_inline))

enum {
    MOST_ALIKE = 64, /* blocks that are gathered together */
    TILE = 256,      /* candidates whose output stays in the nearest cache while all blocks write to it */
    AHEAD = 160,     /* cache lines that are on their way from memory */
    CHUNK = 64,     /* numbers of a chain at a time */
    MOST_WIDTH = 256 /* widest row that is pooled in registers or the nearest cache */
};

/* How many rows those are. */
INLINE int64_t rows_ahead(int64_t bytes) { return bytes <= 64 ? AHEAD : AHEAD * 64 / bytes + 4; }

INLINE void prefetch_row(const char *row, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
    if (bytes & 63) __builtin_prefetch(row + bytes - 1); /* a row need not begin with a cache line */
}

/* A stored row as FP32. */
INLINE void load_row(const char *row, int64_t storage, int64_t width, float *to) {
    if (storage == STORE_F32) {
        memcpy(to, row, (size_t)width * 4);
    } else if (storage == STORE_F16) {
        to_floats((const uint16_t *)row, to, width);
    } else {
        float scale;
        memcpy(&scale, row, 4);
        const int8_t *values = (const int8_t *)(row + 4);
        for (int64_t d = 0; d < width; d++) to[d] = (float)values[d] * scale;
    }
}

INLINE void put_row(const float *row, int64_t width, char *to, int half) {
    if (half)
        to_halves(row, (uint16_t *)to, width);
    else
        memcpy(to, row, (size_t)width * 4);
}

/* A stored row as it goes out. `width` is a constant wherever that pays. */
INLINE void move_row(const char *row, int64_t storage, int64_t width, char *to, int half) {
    if (storage == STORE_F32 && !half) {
        memcpy(to, row, (size_t)width * 4);
    } else if (storage == STORE_F16 && half) {
        memcpy(to, row, (size_t)width * 2);
    } else if (storage == STORE_F32) {
        to_halves((const float *)row, (uint16_t *)to, width);
    } else if (storage == STORE_F16) {
        to_floats((const uint16_t *)row, (float *)to, width);
    } else {
        float values[MOST_WIDTH];
        int64_t size = half ? 2 : 4;
        float scale;
        memcpy(&scale, row, 4);
        for (int64_t done = 0; done < width; done += MOST_WIDTH) {
            int64_t n = width - done < MOST_WIDTH ? width - done : MOST_WIDTH;
            const int8_t *stored = (const int8_t *)(row + 4) + done;
            for (int64_t d = 0; d < n; d++) values[d] = (float)stored[d] * scale;
            put_row(values, n, to + done * size, half);
        }
    }
}

/* Widths that models have are constants in the copies: a copy of unknown size is a call. */
#define BY_WIDTH(width, CALL)   \
    switch (width) {            \
    case 4: CALL(4); break;     \
    case 8: CALL(8); break;     \
    case 16: CALL(16); break;   \
    case 32: CALL(32); break;   \
    case 64: CALL(64); break;   \
    case 128: CALL(128); break; \
    default: CALL(width); break; \
    }

#define BY_STORAGE(storage, half, CALL)                                    \
    switch ((storage) * 2 + ((half) != 0)) {                               \
    case STORE_F32 * 2: CALL(STORE_F32, 0) break;                          \
    case STORE_F32 * 2 + 1: CALL(STORE_F32, 1) break;                      \
    case STORE_F16 * 2: CALL(STORE_F16, 0) break;                          \
    case STORE_F16 * 2 + 1: CALL(STORE_F16, 1) break;                      \
    case STORE_I8 * 2: CALL(STORE_I8, 0) break;                            \
    default: CALL(STORE_I8, 1) break;                                      \
    }

/* One of several blocks of single rows that are alike but for these. */
typedef struct {
    const char *table;
    const int64_t *ids;
    int64_t offset; /* bytes into an output row */
} column;

/* Single rows, side by side: every row of `output` gets one stored row of each of `n` columns. Addresses are
 * computed once, when their rows are asked for, and wait in `coming`: the slots of `depth` rows in turn. */
INLINE void gather_alike(const rows_work *w, const column *columns, int64_t n, int64_t bytes, int64_t first,
                         int64_t last, char *output, int64_t storage, int64_t width, int half) {
    const char *coming[AHEAD + 2 * MOST_ALIKE];
    const int64_t stride = w->width * (half ? 2 : 4), depth = (rows_ahead(bytes) + n - 1) / n;
    for (int64_t d = 0; d < depth && first + d < w->rows; d++)
        for (int64_t k = 0; k < n; k++) {
            const char *row = columns[k].table + columns[k].ids[first + d] * bytes;
            coming[d * n + k] = row;
            prefetch_row(row, bytes);
        }
    int64_t slot = 0;
    /* The last rows of the request have none to ask for; those of a tile ask for the next tile's. */
    const int64_t asking = last < w->rows - depth ? last : w->rows - depth > first ? w->rows - depth : first;
    for (int64_t row = first; row < last; row++, output += stride) {
        const char **here = coming + slot * n;
        if (row < asking) {
            for (int64_t k = 0; k < n; k++) {
                const char *from = here[k], *next = columns[k].table + columns[k].ids[row + depth] * bytes;
                here[k] = next;
                prefetch_row(next, bytes);
                move_row(from, storage, width, output + columns[k].offset, half);
            }
        } else {
            for (int64_t k = 0; k < n; k++) move_row(here[k], storage, width, output + columns[k].offset, half);
        }
        if (++slot == depth) slot = 0;
    }
}

static void gather(const rows_work *w, const bireme_block *b, const column *columns, int64_t n, int64_t first,
                   int64_t last, char *output) {
#define WIDTH(W) gather_alike(w, columns, n, BYTES(W), first, last, output, STORAGE, W, HALF)
#define BYTES(W) (STORAGE == STORE_I8 ? 4 + ((W) + 3) / 4 * 4 : (W) * (STORAGE == STORE_F32 ? 4 : 2))
#define CASE(S, H)                      \
    {                                   \
        const int STORAGE = S, HALF = H; \
        BY_WIDTH(b->row_width, WIDTH)   \
    }
    BY_STORAGE(b->storage, w->half, CASE)
#undef CASE
#undef BYTES
#undef WIDTH
}

/* Rows of a sequence of fixed length, one behind the other. */
static void gather_sequences(const rows_work *w, const bireme_block *b, int64_t first, int64_t last, char *output) {
    const int64_t size = w->half ? 2 : 4, stride = w->width * size, length = w->sources[b->source].length;
    const int64_t *ids = w->ids[b->id];
    const int64_t end = w->rows * length, ahead = rows_ahead(b->row_bytes);
    for (int64_t row = first; row < last; row++) {
        char *to = output + (row - first) * stride + b->offset * size;
        for (int64_t e = row * length; e < (row + 1) * length; e++, to += b->row_width * size) {
            if (e + ahead < end) prefetch_row(b->table + ids[e + ahead] * b->row_bytes, b->row_bytes);
            move_row(b->table + ids[e] * b->row_bytes, b->storage, b->row_width, to, w->half);
        }
    }
}

/* Whether element `e` passes all conditions of a block's mask. */
INLINE int passes(const rows_work *w, const bireme_test *tests, int64_t count, int64_t e) {
    for (int64_t t = 0; t < count; t++) {
        const bireme_test *test = tests + t;
        int less, more;
        if (test->id >= 0) {
            int64_t value = w->ids[test->id][e];
            less = value < test->whole, more = value > test->whole;
        } else {
            const elements *s = w->sources + test->source;
            if (s->type == TYPE_F32) {
                float value = ((const float *)s->data)[e], limit = (float)test->real;
                less = value < limit, more = value > limit;
            } else if (s->type == TYPE_F64) {
                double value = ((const double *)s->data)[e];
                less = value < test->real, more = value > test->real;
            } else {
                int64_t value = s->type == TYPE_I32    ? ((const int32_t *)s->data)[e]
                                : s->type == TYPE_BOOL ? ((const uint8_t *)s->data)[e]
                                                       : ((const int64_t *)s->data)[e];
                less = value < test->whole, more = value > test->whole;
            }
        }
        int pass = test->test == TEST_NE   ? less | more
                   : test->test == TEST_GE ? !less
                   : test->test == TEST_GT ? more
                                           : less;
        if (!pass) return 0;
    }
    return 1;
}

/* A mask's sequences are as long as the ids'. */
static int tests_fit(const rows_work *w, const bireme_block *b, int64_t length) {
    const bireme_test *tests = w->program->tests + b->first_test;
    for (int64_t t = 0; t < b->tests; t++)
        if (w->sources[tests[t].source].length != length) return 0;
    return 1;
}

/* The rows of a sequence as one; `width` ≤ MOST_WIDTH columns from `column` on. */
INLINE void pool_rows(const char *const *rows, const float *weights, int64_t n, int64_t pool, int64_t storage,
                      int64_t width, int64_t bytes, const char *const *ahead, const char *const *end,
                      float *result) {
    float sum[MOST_WIDTH], row[MOST_WIDTH];
    for (int64_t d = 0; d < width; d++) sum[d] = 0.0f;
    for (int64_t e = 0; e < n; e++) {
        if (ahead + e < end) prefetch_row(ahead[e], bytes);
        load_row(rows[e], storage, width, row);
        if (weights) {
            float weight = weights[e];
            for (int64_t d = 0; d < width; d++) row[d] *= weight;
        }
        if (pool == POOL_MAX) {
            if (e == 0)
                for (int64_t d = 0; d < width; d++) sum[d] = row[d];
            else
                for (int64_t d = 0; d < width; d++) sum[d] = row[d] > sum[d] ? row[d] : sum[d];
        } else {
            for (int64_t d = 0; d < width; d++) sum[d] += row[d];
        }
    }
    memcpy(result, sum, (size_t)width * 4);
}

static void pool_plain(const bireme_block *b, const char *const *rows, int64_t n, const char *const *ahead,
                       const char *const *end, float *result) {
#define WIDTH(W) pool_rows(rows, 0, n, POOL_SUM, STORAGE, W, b->row_bytes, ahead, end, result)
#define CASE(S, H)                \
    {                             \
        const int STORAGE = S;    \
        BY_WIDTH(b->row_width, WIDTH)   \
    }
    if (b->storage == STORE_F32)
        CASE(STORE_F32, 0)
    else if (b->storage == STORE_F16)
        CASE(STORE_F16, 0)
    else
        CASE(STORE_I8, 0)
#undef CASE
#undef WIDTH
}

static float divisor_of(const bireme_block *b, const float *weights, int64_t n) {
    if (!weights) {
        double count = b->pool == POOL_MEAN ? (double)n : sqrt((double)n);
        return (float)(count > b->floor ? count : b->floor);
    }
    float total = 0.0f;
    for (int64_t e = 0; e < n; e++) total += b->pool == POOL_MEAN ? weights[e] : weights[e] * weights[e];
    return b->pool == POOL_MEAN ? total : sqrtf(total);
}

/* The rows of pooled blocks are listed for all of them before any is added up, so that the rows of the next
 * sequence, and of the next block, are on their way meanwhile. */
typedef struct {
    const char **addresses;
    float *weights;
    int64_t *counts;
} listed;

/* Puts a block's rows at `at`, and moves it behind them. */
static int list(const rows_work *w, const bireme_block *b, listed *at) {
    const int64_t length = w->sources[b->source].length;
    const int64_t *ids = w->ids[b->id];
    const bireme_test *tests = w->program->tests + b->first_test;
    const elements *weighted = b->weights >= 0 ? w->sources + b->weights : 0;
    if (b->row_width > MOST_WIDTH || !tests_fit(w, b, length)) return 0;
    if (weighted && weighted->length != length) return 0;
    uint64_t outside = 0;
    for (int64_t row = 0; row < w->rows; row++) {
        const char **before = at->addresses;
        for (int64_t e = row * length; e < (row + 1) * length; e++) {
            if (b->tests && !passes(w, tests, b->tests, e)) continue;
            outside |= (uint64_t)ids[e] >= (uint64_t)b->rows;
            *at->addresses++ = b->table + ids[e] * b->row_bytes;
            if (weighted) *at->weights++ = ((const float *)weighted->data)[e];
        }
        *at->counts++ = at->addresses - before;
    }
    return !outside;
}

/* Adds up the rows at `at`, and moves it behind them. */
static int pool(const rows_work *w, const bireme_block *b, listed *at, const char *const *end, char *output) {
    const int64_t size = w->half ? 2 : 4, width = b->row_width, ahead = rows_ahead(b->row_bytes);
    const float limit = (float)w->program->limit;
    float result[MOST_WIDTH];
    for (int64_t row = 0; row < w->rows; row++) {
        const int64_t n = *at->counts++, place = row + row / w->group * (w->padded - w->group);
        const char *const *rows = at->addresses;
        const float *weights = b->weights >= 0 ? at->weights : 0;
        at->addresses += n;
        if (weights) at->weights += n;
        if (n == 0) {
            if (b->refuse_empty) return 0;
            memset(result, 0, sizeof result);
            if (b->fill >= 0) load_row(b->table + b->fill * b->row_bytes, b->storage, width, result);
        } else {
            if (!weights && b->pool != POOL_MAX)
                pool_plain(b, rows, n, rows + ahead, end, result);
            else
                pool_rows(rows, weights, n, b->pool, b->storage, width, b->row_bytes, rows + ahead, end, result);
            if (b->pool == POOL_MEAN || b->pool == POOL_SQRTN) {
                float divisor = divisor_of(b, weights, n);
                /* Weights may add up to 0; the original then gives 0 (DivNoNan). */
                for (int64_t d = 0; d < width; d++) result[d] = divisor != 0.0f ? result[d] / divisor : 0.0f;
            }
        }
        int bad = 0;
        for (int64_t d = 0; d < width; d++) bad |= !(fabsf(result[d]) <= limit); /* also NaN */
        if (bad) return 0;
        put_row(result, width, output + (place * w->width + b->offset) * size, w->half);
    }
    return 1;
}

/* All pooled blocks. */
static int pools(const rows_work *w, char *output) {
    listed at = {w->addresses, w->weights, w->counts};
    const bireme_block *first = 0;
    for (int64_t k = 0; k < w->block_count; k++) {
        const bireme_block *b = w->blocks + k;
        if (b->op != BLOCK_POOL) continue;
        if (!first) first = b;
        if (!list(w, b, &at)) return 0;
    }
    const char *const *const end = at.addresses;
    at = (listed){w->addresses, w->weights, w->counts};
    for (int64_t i = 0; first && i < rows_ahead(first->row_bytes) && at.addresses + i < end; i++)
        prefetch_row(at.addresses[i], first->row_bytes);
    for (int64_t k = 0; k < w->block_count; k++) {
        const bireme_block *b = w->blocks + k;
        if (b->op == BLOCK_POOL && !pool(w, b, &at, end, output)) return 0;
    }
    return 1;
}

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

/* All ids of a block that is not masked are rows of its table. */
static int ids_fit(const rows_work *w, const bireme_block *b) {
    const elements *s = w->sources + b->source;
    const int64_t *ids = w->ids[b->id];
    uint64_t outside = 0;
    for (int64_t e = 0; e < w->rows * s->length; e++) outside |= (uint64_t)ids[e] >= (uint64_t)b->rows;
    return !outside && b->width == s->length * b->row_width;
}

static int alike(const bireme_block *a, const bireme_block *b) {
    return a->op == b->op && a->row_width == b->row_width && a->storage == b->storage && a->width == b->width;
}

/* Blocks that are not pooled, for rows first..last, which lie one behind the other in `output`. */
static int tile(const rows_work *w, int64_t first, int64_t last, char *output) {
    const int64_t size = w->half ? 2 : 4;
    column columns[MOST_ALIKE];
    for (int64_t k = 0; k < w->block_count; k++) {
        const bireme_block *b = w->blocks + k;
        if (b->op == BLOCK_NUMBERS && !numbers(w, b, first, last, output)) return 0;
        if (b->op == BLOCK_MASK && !mask(w, b, first, last, output)) return 0;
        if (b->op != BLOCK_ROWS) continue;
        if (b->width != b->row_width) {
            gather_sequences(w, b, first, last, output);
            continue;
        }
        int64_t n = 0;
        for (; k < w->block_count && n < MOST_ALIKE && alike(b, w->blocks + k); k++, n++) {
            const bireme_block *next = w->blocks + k;
            columns[n] = (column){next->table, w->ids[next->id], next->offset * size};
        }
        k--;
        gather(w, b, columns, n, first, last, output);
    }
    return 1;
}

int JOIN(rows_, VARIANT)(const rows_work *w) {
    const int64_t stride = w->width * (w->half ? 2 : 4);
    char *output = w->output;
    for (int64_t k = 0; k < w->block_count; k++) {
        const bireme_block *b = w->blocks + k;
        if (b->op == BLOCK_ROWS && !ids_fit(w, b)) return 0;
        if (b->op == BLOCK_NUMBERS && b->width != w->sources[b->source].length) return 0;
    }
    if (!pools(w, output)) return 0;
    for (int64_t first = 0; first < w->rows;) {
        int64_t group = first / w->group, end = (group + 1) * w->group;
        int64_t last = first + TILE < end ? first + TILE : end;
        char *to = output + (group * w->padded + first - group * w->group) * stride;
        if (!tile(w, first, last, to)) return 0;
        first = last;
        if (last == end && w->padded > w->group)
            memset(output + (group * w->padded + w->group) * stride, 0, (size_t)((w->padded - w->group) * stride));
    }
    return 1;
}
