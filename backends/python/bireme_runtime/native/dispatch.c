#include "dispatch.h"

#include <stdlib.h>
#include <string.h>

#include "cpu.h"

typedef struct {
    const char *name;
    rows_function *rows;
} variant;

static const variant VARIANTS[] = {
    [CPU_BASELINE] = {"baseline", rows_baseline},
#if defined(__x86_64__)
    [CPU_AVX2] = {"avx2", rows_avx2},
    [CPU_AVX512] = {"avx512", rows_avx512},
#endif
};

/* The widest that fits this processor, or the one that BIREME_KERNEL names if it fits. */
static variant choose(void) {
    int best = cpu_best();
    const char *wanted = getenv("BIREME_KERNEL");
    for (int i = 0; wanted && i <= best; i++)
        if (!strcmp(wanted, VARIANTS[i].name)) return VARIANTS[i];
    return VARIANTS[best];
}

rows_function *dispatch_rows(void) { return choose().rows; }

const char *bireme_variant(void) { return choose().name; }

int64_t bireme_abi(void) { return BIREME_ABI; }
