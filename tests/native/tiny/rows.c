#include "rows.h"
void JOIN(add_, VARIANT)(float *out, const float *a, const float *b, int64_t count) {
    for (int64_t i = 0; i < count; i++) out[i] = a[i] * a[i] + b[i]; /* contracted, this would round once */
}
