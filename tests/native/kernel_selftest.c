/* The kernel against fixed values: one small plan, two requests, FP32 and FP16 out. Prints the variant.
 *
 * Hashes are TensorFlow's (to_hash_bucket_fast and _strong with key 7, 9, of 1000 buckets), logarithms the
 * true ones rounded; everything else is exact in FP16 and worked out by hand.
 */
#include <stdio.h>
#include <string.h>

#include "bireme.h"

enum { WIDTH = 19, ROWS = 5, LENGTH = 3, USER_WIDTH = 2 * WIDTH, ITEM_WIDTH = 2 * WIDTH + 3, PADDED = 4 };

static float plain[ROWS][WIDTH];
static uint16_t half[ROWS][WIDTH];
static struct { float scale; int8_t values[WIDTH + 1]; } bytes[ROWS];

/* Small whole numbers, another one for every row and column. */
static float cell(int64_t row, int64_t column) { return (float)(row * 20 - column); }

static float from_half(uint16_t bits) {
    int exponent = bits >> 10 & 31;
    float value = (float)(bits & 1023) / 1024 + (exponent ? 1 : 0);
    for (int e = exponent ? exponent : 1; e < 15; e++) value /= 2;
    for (int e = exponent; e > 15; e--) value *= 2;
    return bits >> 15 ? -value : value;
}

/* FP16 of a whole number up to 127. */
static uint16_t to_half(float value) {
    for (uint32_t bits = 0; bits < 0x7C00; bits++) {
        if (from_half((uint16_t)bits) == value) return (uint16_t)bits;
        if (from_half((uint16_t)bits) == -value) return (uint16_t)(bits | 0x8000);
    }
    return 0x7E00;
}

static int faults;
static void expect(const char *what, int64_t row, int64_t column, float found, float wanted) {
    if (found == wanted) return;
    if (faults++ < 10) printf("%s [%d, %d]: %a instead of %a\n", what, (int)row, (int)column, found, wanted);
}

static void put_text(uint8_t *payload, int64_t *at, const char *text) {
    uint32_t length = (uint32_t)strlen(text);
    for (int i = 0; i < 4; i++) payload[(*at)++] = (uint8_t)(length >> 8 * i);
    memcpy(payload + *at, text, length);
    *at += length;
}

int main(void) {
    for (int64_t r = 0; r < ROWS; r++) {
        bytes[r].scale = 0.5f;
        for (int64_t c = 0; c < WIDTH; c++) {
            plain[r][c] = cell(r, c);
            half[r][c] = to_half(cell(r, c));
            bytes[r].values[c] = (int8_t)cell(r, c);
        }
    }
    const bireme_source sources[] = {
        {.type = TYPE_I64, .side = SIDE_USER, .length = 0},
        {.type = TYPE_I64, .side = SIDE_ITEM, .length = -1},
        {.type = TYPE_TEXT, .side = SIDE_ITEM, .length = -1, .bytes = 1, .checks = CHECK_UTF8},
        {.type = TYPE_F32, .side = SIDE_ITEM, .length = -1},
    };
    const bireme_id ids[] = {
        {.op = ID_IDENTITY, .source = 0, .of = -1},
        {.op = ID_IDENTITY, .source = 1, .of = -1},
        {.op = ID_HASH, .source = 2, .of = -1, .buckets = 1000},
        {.op = ID_STRONG, .source = 2, .of = -1, .buckets = 1000, .key0 = 7, .key1 = 9},
    };
    const bireme_operation operations[] = {{.op = DO_LOG1P}};
    const bireme_block blocks[] = {
        {.op = BLOCK_POOL, .side = SIDE_USER, .offset = 0, .width = WIDTH, .id = 0, .source = 0,
         .table = (const char *)plain, .rows = ROWS, .row_bytes = sizeof plain[0], .row_width = WIDTH,
         .storage = STORE_F32, .pool = POOL_SUM, .weights = -1, .fill = -1},
        {.op = BLOCK_POOL, .side = SIDE_USER, .offset = WIDTH, .width = WIDTH, .id = 0, .source = 0,
         .table = (const char *)half, .rows = ROWS, .row_bytes = sizeof half[0], .row_width = WIDTH,
         .storage = STORE_F16, .pool = POOL_MAX, .weights = -1, .fill = -1},
        {.op = BLOCK_ROWS, .side = SIDE_ITEM, .offset = 0, .width = WIDTH, .id = 1, .source = 1,
         .table = (const char *)half, .rows = ROWS, .row_bytes = sizeof half[0], .row_width = WIDTH,
         .storage = STORE_F16, .weights = -1, .fill = -1},
        {.op = BLOCK_ROWS, .side = SIDE_ITEM, .offset = WIDTH, .width = WIDTH, .id = 1, .source = 1,
         .table = (const char *)bytes, .rows = ROWS, .row_bytes = sizeof bytes[0], .row_width = WIDTH,
         .storage = STORE_I8, .weights = -1, .fill = -1},
        {.op = BLOCK_NUMBERS, .side = SIDE_ITEM, .offset = 2 * WIDTH, .width = 1, .id = 2, .source = 2,
         .weights = -1, .fill = -1},
        {.op = BLOCK_NUMBERS, .side = SIDE_ITEM, .offset = 2 * WIDTH + 1, .width = 1, .id = 3, .source = 2,
         .weights = -1, .fill = -1},
        {.op = BLOCK_NUMBERS, .side = SIDE_ITEM, .offset = 2 * WIDTH + 2, .width = 1, .id = -1, .source = 3,
         .weights = -1, .fill = -1, .operations = 1},
    };
    bireme_program program = {
        .sources = sources, .ids = ids, .blocks = blocks, .operations = operations,
        .source_count = 4, .id_count = 4, .user_blocks = 2, .block_count = 7,
        .user_width = USER_WIDTH, .item_width = ITEM_WIDTH, .limit = 65504, .longest_text = 1 << 20, .size_count = 2,
    };
    /* Two requests of one user: three candidates, and one. */
    int64_t whole[] = {4, 0, 4, /* history of the first */ 0, 3, 1, /* its candidates */ 2, 2, 1, 4};
    float real[] = {0.0f, 1.0f, 0.5f, 1.0f};
    uint8_t payload[256 + BIREME_SLACK] = {0};
    int64_t size = 0, first;
    put_text(payload, &size, "");
    put_text(payload, &size, "shoe");
    put_text(payload, &size, "a string of more than sixty-four bytes, so that every branch of the hash is used");
    first = size;
    put_text(payload, &size, "shoe");
    const float hashed[] = {263, 545, 228, 545}, strong[] = {164, 972, 393, 972};
    const float logs[] = {0.0f, 0x1.62e430p-1f, 0x1.9f323ep-2f, 0x1.62e430p-1f};
    const float half_logs[] = {0.0f, 0x1.63p-1f, 0x1.9f4p-2f, 0x1.63p-1f};
    const int64_t histories[2][LENGTH] = {{4, 0, 4}, {2, 2, 1}}, items[] = {0, 3, 1, 4};
    const int64_t users[] = {1, 1}, candidates[] = {3, 1}, padded[] = {PADDED, PADDED};
    const int64_t sizes[] = {LENGTH, first, LENGTH, size - first};
    const void *stages[TYPE_COUNT] = {0};
    stages[TYPE_I64] = whole;
    stages[TYPE_F32] = real;
    stages[TYPE_TEXT] = payload;
    if (bireme_abi() != BIREME_ABI) return printf("the ABI is another\n"), 1;
    for (program.half = 0; program.half < 2; program.half++) {
        float user[2][USER_WIDTH], item[2 * PADDED][ITEM_WIDTH];
        uint16_t user_half[2][USER_WIDTH], item_half[2 * PADDED][ITEM_WIDTH];
        memset(item, 255, sizeof item);
        memset(item_half, 255, sizeof item_half);
        bireme_batch batch = {
            .count = 2, .users = users, .candidates = candidates, .padded = padded, .sizes = sizes,
            .stages = stages, .user = program.half ? (void *)user_half : (void *)user,
            .items = program.half ? (void *)item_half : (void *)item,
        };
        void *handle = bireme_open(&program);
        if (!handle || bireme_run(handle, &batch) != BIREME_DONE) return printf("does not run\n"), 1;
        if (program.half) {
            for (int64_t r = 0; r < 2; r++)
                for (int64_t c = 0; c < USER_WIDTH; c++) user[r][c] = from_half(user_half[r][c]);
            for (int64_t r = 0; r < 2 * PADDED; r++)
                for (int64_t c = 0; c < ITEM_WIDTH; c++) item[r][c] = from_half(item_half[r][c]);
        }
        for (int64_t r = 0; r < 2; r++)
            for (int64_t c = 0; c < WIDTH; c++) {
                float sum = 0, most = cell(0, WIDTH);
                for (int64_t i = 0; i < LENGTH; i++) {
                    float value = cell(histories[r][i], c);
                    sum += value;
                    most = value > most ? value : most;
                }
                expect("sum", r, c, user[r][c], sum);
                expect("max", r, c, user[r][WIDTH + c], most);
            }
        for (int64_t r = 0, from = 0; r < 2 * PADDED; r++) {
            int real_row = r % PADDED < candidates[r / PADDED];
            for (int64_t c = 0; c < WIDTH; c++) {
                expect("half", r, c, item[r][c], real_row ? cell(items[from], c) : 0);
                expect("int8", r, c, item[r][WIDTH + c], real_row ? cell(items[from], c) / 2 : 0);
            }
            expect("hash", r, 0, item[r][2 * WIDTH], real_row ? hashed[from] : 0);
            expect("strong", r, 0, item[r][2 * WIDTH + 1], real_row ? strong[from] : 0);
            const float *wanted = program.half ? half_logs : logs;
            expect("log1p", r, 0, item[r][2 * WIDTH + 2], real_row ? wanted[from] : 0);
            from += real_row;
        }
        whole[5] = ROWS; /* a row that the table does not have */
        if (bireme_run(handle, &batch) != BIREME_UNUSUAL) faults += 1, printf("an id outside passes\n");
        whole[5] = 1;
        bireme_close(handle);
    }
    if (faults) return printf("%d faults\n", faults), 1;
    printf("%s\n", bireme_variant());
    return 0;
}
