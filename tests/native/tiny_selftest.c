/* Values worked out by hand; prints the variant that gave them. */
#include <stdio.h>

#include "rows.h"

const char *bireme_build(void);

int main(void) {
    enum { COUNT = 67 }; /* whole vectors of every variant, and some left over */
    float a[COUNT], b[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) {
        a[i] = 1.0f + 1.0f / 4096; /* squared: 1 + 2^-11 + 2^-24, of which FP32 drops the last */
        b[i] = -1.0f;
    }
    b[0] = -0x1.002p0f + 1.0f;
    bireme_add(out, a, b, COUNT);
    if (out[0] != 0.0f) return printf("logf(1) is %a\n", out[0]), 1;
    for (int i = 1; i < COUNT; i++)
        if (out[i] != 0x1p-11f) return printf("element %d is %a\n", i, out[i]), 1;
    if (bireme_abi() != 7) return 1;
    printf("%s %s\n", bireme_variant(), bireme_build());
    return 0;
}
