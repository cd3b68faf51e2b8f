/* Which elements of a sequence count.
 * Part of rows.c: compiled once for every variant. */
#ifndef BIREME_MASKS_H
#define BIREME_MASKS_H

#include "copy.h"

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

#endif
