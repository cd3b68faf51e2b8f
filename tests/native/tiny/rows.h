/* A kernel of one function, made like the real one, for tests of how it is made. */
#include <stdint.h>
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
typedef void add_function(float *out, const float *a, const float *b, int64_t count);
add_function add_baseline, add_avx2, add_avx512;
int64_t bireme_abi(void);
const char *bireme_variant(void);
void bireme_add(float *out, const float *a, const float *b, int64_t count);
