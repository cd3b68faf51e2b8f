/* Stored rows: asked for ahead of time, and copied or converted to what goes out.
 * Part of rows.c: compiled once for every variant. */
#ifndef BIREME_COPY_H
#define BIREME_COPY_H

#include <string.h>

#include "half.h"
#include "rows.h"

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

#endif
