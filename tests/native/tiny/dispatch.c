#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "rows.h"
#define EXPORT __attribute__((visibility("default")))

static int level(void) {
    const char *names[] = {"baseline", "avx2", "avx512"}, *forced = getenv("BIREME_KERNEL");
    int best = cpu_best();
    for (int i = 0; forced && i <= best; i++)
        if (!strcmp(forced, names[i])) return i;
    return best;
}

EXPORT int64_t bireme_abi(void) { return 7; }
EXPORT const char *bireme_variant(void) {
    const char *names[] = {"baseline", "avx2", "avx512"};
    return names[level()];
}
EXPORT void bireme_add(float *out, const float *a, const float *b, int64_t count) {
#if defined(__x86_64__)
    add_function *all[] = {add_baseline, add_avx2, add_avx512};
#else
    add_function *all[] = {add_baseline};
#endif
    all[level()](out, a, b, count);
    out[0] = logf(out[0]); /* to be the C library's */
}
