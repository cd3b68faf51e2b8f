#include "dispatch.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    rows_function *rows;
    int fits; /* this processor has its instructions */
} variant;

#if defined(__x86_64__)

static void list(variant variants[3]) {
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma")
               && __builtin_cpu_supports("bmi2");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
                 && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                 && __builtin_cpu_supports("avx512cd");
    variants[0] = (variant){"avx512", rows_avx512, avx512};
    variants[1] = (variant){"avx2", rows_avx2, avx2};
    variants[2] = (variant){"baseline", rows_baseline, 1};
}

#else

static void list(variant variants[3]) {
    variants[0] = (variant){"avx512", 0, 0};
    variants[1] = (variant){"avx2", 0, 0};
    variants[2] = (variant){"baseline", rows_baseline, 1};
}

#endif

/* The widest that fits, or the one that BIREME_KERNEL names if it fits. */
static variant choose(void) {
    variant variants[3];
    list(variants);
    const char *wanted = getenv("BIREME_KERNEL");
    for (int i = 0; wanted && i < 3; i++)
        if (!strcmp(wanted, variants[i].name) && variants[i].fits) return variants[i];
    for (int i = 0; i < 3; i++)
        if (variants[i].fits) return variants[i];
    return variants[2];
}

rows_function *dispatch_rows(void) { return choose().rows; }

const char *bireme_variant(void) { return choose().name; }

int64_t bireme_abi(void) { return BIREME_ABI; }
