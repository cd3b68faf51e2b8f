/* What this machine's memory gives at best: one word of every cache line of rows at random places. */
#include <stdint.h>

/* rows: byte offsets into base; lines: cache lines of a row; ahead: rows to prefetch. The sum keeps the reads. */
__attribute__((visibility("default"))) uint64_t probe_read(const char *base, const int64_t *rows, int64_t count,
                                                           int64_t lines, int64_t ahead) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i + ahead < count)
            for (int64_t line = 0; line < lines; line++) __builtin_prefetch(base + rows[i + ahead] + 64 * line);
        for (int64_t line = 0; line < lines; line++) sum += *(const uint64_t *)(base + rows[i] + 64 * line);
    }
    return sum;
}
