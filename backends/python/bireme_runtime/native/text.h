/* Strings: where they lie in a payload, whether they are UTF-8, and their hashes. */
#ifndef BIREME_TEXT_H
#define BIREME_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *bytes;
    int64_t length;
} text;

/* Little-endian loads; every platform that this is built for is little-endian. */
static inline uint64_t load64(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline uint32_t load32(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

/* Split a payload (each string as a 4-byte length and its bytes) into `count` strings.
 * Returns 0 if it does not hold exactly so many, or one is longer than `longest`. */
int text_split(const uint8_t *payload, int64_t size, int64_t count, int64_t longest, text *texts);

/* Whether a payload, its strings' lengths included, has no byte above 127: then all its strings are UTF-8. */
int text_all_ascii(const uint8_t *payload, int64_t size);

/* Whether a string is valid UTF-8 as Python's strict decoder sees it. */
int text_is_utf8(text t);

/* FarmHash Fingerprint64: TensorFlow's StringToHashBucketFast before the modulo. */
uint64_t farmhash64(const uint8_t *s, size_t n);

/* SipHash-2-4: TensorFlow's StringToHashBucketStrong before the modulo. */
uint64_t siphash64(const uint8_t *s, size_t n, uint64_t key0, uint64_t key1);

#endif
