/* What Python and the kernel agree on: a feature plan as flat arrays, and one batch of requests as flat arrays.
 *
 * The Python side is program.py, which builds the same structures as numpy dtypes; a change here is a change
 * there and of BIREME_ABI. All structures hold 8-byte fields only, so that no compiler pads them differently.
 */
#ifndef BIREME_H
#define BIREME_H

#include <stdint.h>

#define BIREME_ABI 1
#define BIREME_EXPORT __attribute__((visibility("default")))

/* Bytes that may be read behind the last string of a stage. */
#define BIREME_SLACK 64

/* Outcome of `bireme_run`. Anything but DONE sends the batch through numpy, which finds the words for it. */
enum { BIREME_DONE = 0, BIREME_UNUSUAL = 1, BIREME_NO_MEMORY = 2 };

enum { SIDE_USER = 0, SIDE_ITEM = 1 };

/* How a source's elements lie in memory. READY: ids that numpy made, for the whole batch end to end. */
enum { TYPE_I64, TYPE_I32, TYPE_F32, TYPE_F64, TYPE_BOOL, TYPE_TEXT, TYPE_READY, TYPE_COUNT };

enum { CHECK_UTF8 = 1 };

/* A feature, or ids made elsewhere. */
typedef struct {
    int64_t type;
    int64_t side;
    int64_t length; /* which of a request's `sizes` is the elements of a row; -1: one */
    int64_t bytes;  /* text: which of a request's `sizes` is the bytes of its payload; READY: which array */
    int64_t checks;
} bireme_source;

enum { ID_IDENTITY, ID_HASH, ID_STRONG, ID_WORD, ID_KEY, ID_BUCKETIZE, ID_EQUAL, ID_COMPUTE };

/* Functions of ID_COMPUTE: integers as TensorFlow computes them, wrapping in the step's dtype. */
enum { FN_CAST, FN_ADD, FN_SUB, FN_RSUB, FN_MUL, FN_FLOORDIV, FN_FLOORMOD, FN_MOD, FN_MINIMUM, FN_MAXIMUM };

/* A step that makes one int64 id of every element of a source, or of an earlier id step's ids. */
typedef struct {
    int64_t op;
    int64_t source;   /* index of the source that the elements are of */
    int64_t of;       /* earlier id step whose ids are read instead, or -1 */
    uint64_t buckets; /* HASH, STRONG */
    uint64_t key0, key1; /* STRONG */
    int64_t fallback; /* WORD, KEY: id of what is not known */
    int64_t function, narrow, constant; /* COMPUTE; narrow: int32 */
    const void *table, *more, *text; /* WORD: entries, directory, keys; KEY: keys, ids; BUCKETIZE: edges; EQUAL: bytes */
    int64_t count, extra; /* WORD: log2 of the directory, longest key; KEY, BUCKETIZE: entries; EQUAL: bytes */
    const uint64_t *coefficients; /* WORD */
} bireme_id;

enum { STORE_F32, STORE_F16, STORE_I8 };
enum { BLOCK_ROWS, BLOCK_POOL, BLOCK_NUMBERS, BLOCK_MASK };
enum { POOL_SUM, POOL_MEAN, POOL_SQRTN, POOL_MAX };
enum { TEST_NE, TEST_GE, TEST_GT, TEST_LT };
enum { DO_ADD, DO_SUB, DO_RSUB, DO_MUL, DO_DIV, DO_MINIMUM, DO_MAXIMUM,
       DO_LOG1P, DO_LOG, DO_SQRT, DO_SQUARE, DO_ABS, DO_NEG, DO_TANH };

/* One condition of a mask: an element's id or number against a constant. */
typedef struct {
    int64_t id;     /* id step, or -1 */
    int64_t source; /* numeric source, where id is -1 */
    int64_t test;
    int64_t whole;  /* the constant, for integers */
    double real;    /* the constant, for floats */
} bireme_test;

/* One scalar operation of a numeric chain, in FP32. */
typedef struct {
    int64_t op;
    double constant;
} bireme_operation;

/* Some columns of one output. */
typedef struct {
    int64_t op;
    int64_t side;
    int64_t offset, width; /* columns of the output */
    int64_t id;            /* id step (ROWS, POOL; NUMBERS of ids), or -1 */
    int64_t source;        /* numeric source (NUMBERS), or the source that the ids are of */
    const char *table;
    int64_t rows, row_bytes, row_width, storage;
    int64_t pool;
    int64_t first_test, tests;
    int64_t weights; /* float source, or -1 */
    int64_t fill;    /* row of an empty sequence, or -1: zeros */
    int64_t refuse_empty;
    double floor;
    int64_t first_operation, operations;
} bireme_block;

typedef struct {
    const bireme_source *sources;
    const bireme_id *ids;
    const bireme_block *blocks; /* user blocks first */
    const bireme_test *tests;
    const bireme_operation *operations;
    int64_t source_count, id_count, user_blocks, block_count;
    int64_t user_width, item_width;
    int64_t half;     /* hand over FP16 */
    double limit;     /* largest magnitude that the hand-over holds */
    int64_t longest_text; /* bytes that a string may have */
    int64_t size_count;   /* `sizes` of a request */
} bireme_program;

/* One batch. Request r has users[r] users and candidates[r] candidates; its rows of items are laid out for
 * padded[r] candidates, those behind the last are zero. Its tensors lie in `stages`, by type: request by
 * request, and in the order of the program's sources within one. */
typedef struct {
    int64_t count;
    const int64_t *users, *candidates, *padded;
    const int64_t *sizes; /* [count, size_count] */
    const void *const *stages; /* TYPE_COUNT */
    const int64_t **ready; /* moved on as requests are read */
    void *user, *items;
    int64_t single; /* write FP32, whatever the hand-over */
} bireme_batch;

BIREME_EXPORT int64_t bireme_abi(void);
BIREME_EXPORT const char *bireme_variant(void);
BIREME_EXPORT void *bireme_open(const bireme_program *program);
BIREME_EXPORT void bireme_close(void *handle);
BIREME_EXPORT int64_t bireme_run(void *handle, const bireme_batch *batch);

#endif
