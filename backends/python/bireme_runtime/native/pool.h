/* Sequences of rows as one row each.
 * Part of rows.c: compiled once for every variant. */
#ifndef BIREME_POOL_H
#define BIREME_POOL_H

#include <math.h>

#include "copy.h"
#include "masks.h"

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

#endif
