/* Columns of the outputs: gather, pool, convert; the part that is compiled once for every instruction set. */
#ifndef BIREME_ROWS_H
#define BIREME_ROWS_H

#include "bireme.h"
#include "ids.h"

/* What the blocks of one side need for one request. */
typedef struct {
    const bireme_program *program;
    const bireme_block *blocks;
    int64_t block_count;
    const elements *sources;
    const int64_t *const *ids; /* of every id step */
    int64_t rows;              /* of this side */
    int64_t group, padded;     /* every `group` rows are followed by padded − group rows of zeros */
    void *output;
    int64_t width; /* columns of `output` */
    int half;      /* `output` is FP16 */
    /* Room for the pooled blocks: their rows, weights, and how many each sequence has. */
    const char **addresses;
    float *weights;
    int64_t *counts;
} rows_work;

/* Returns 0 if a value or an id is not what the plan allows; then `output` means nothing. */
typedef int rows_function(const rows_work *work);

rows_function rows_baseline, rows_avx2, rows_avx512;

#endif
