/* Rows that go out as they are: single ones side by side, and sequences of fixed length.
 * Part of rows.c: compiled once for every variant. */
#ifndef BIREME_GATHER_H
#define BIREME_GATHER_H

#include "copy.h"

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

#endif
