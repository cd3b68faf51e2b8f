/* The kernel proper; see rows.h. Compiled with -DVARIANT=…: nothing here may be visible under another name. */
#include "rows.h"

#include <string.h>

#include "gather.h"
#include "numbers.h"
#include "pool.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

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
