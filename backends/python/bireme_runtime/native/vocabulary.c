#include "vocabulary.h"

enum { AT_ONCE = 32 }; /* strings whose memory accesses overlap */

static const uint64_t SCRAMBLE = 0xD6E8FEB86659FD93u;

typedef struct {
    uint64_t hash;
    int64_t start, length, id;
} entry;

static inline uint64_t scrambled(uint64_t word) {
    word *= SCRAMBLE;
    return word ^ word >> 32;
}

/* Σ coefficient · scrambled word, the last word filled up with zeros; see `_hash` in vocabulary.py. */
static inline uint64_t hash_of(text t, const uint64_t *coefficients) {
    uint64_t hash = (uint64_t)t.length * coefficients[0];
    int64_t at = 0, word = 1;
    for (; at + 8 <= t.length; at += 8, word++) hash += scrambled(load64(t.bytes + at)) * coefficients[word];
    if (at < t.length) { /* a stage has slack behind its last string */
        uint64_t last = load64(t.bytes + at) & (~(uint64_t)0 >> (64 - 8 * (t.length - at)));
        hash += scrambled(last) * coefficients[word];
    }
    return hash;
}

static inline int equal(const uint8_t *a, const uint8_t *b, int64_t n) {
    for (; n >= 8; a += 8, b += 8, n -= 8)
        if (load64(a) != load64(b)) return 0;
    for (; n; a++, b++, n--)
        if (*a != *b) return 0;
    return 1;
}

/* The directory's entry, the first one that may fit, and its key are three cache misses in a row: for many
 * strings side by side they cost as much as for one. */
void vocabulary_find(const bireme_id *step, const text *texts, int64_t count, int64_t *ids) {
    const entry *entries = step->table;
    const uint32_t *directory = step->more;
    const uint8_t *keys = step->text;
    const int shift = (int)(64 - step->count);
    uint64_t hashes[AT_ONCE];
    const entry *candidates[AT_ONCE];
    for (int64_t first = 0; first < count; first += AT_ONCE) {
        int n = (int)(count - first < AT_ONCE ? count - first : AT_ONCE);
        const text *t = texts + first;
        for (int i = 0; i < n; i++) {
            /* What is longer than every key has no coefficients, and is no key. */
            hashes[i] = t[i].length <= step->extra ? hash_of(t[i], step->coefficients) : ~(uint64_t)0;
            __builtin_prefetch(directory + (hashes[i] >> shift));
        }
        for (int i = 0; i < n; i++) {
            candidates[i] = entries + directory[hashes[i] >> shift];
            __builtin_prefetch(candidates[i]);
        }
        for (int i = 0; i < n; i++) {
            while (candidates[i]->hash < hashes[i]) candidates[i]++; /* the sentinel ends it */
            __builtin_prefetch(keys + candidates[i]->start);
        }
        for (int i = 0; i < n; i++) {
            const entry *e = candidates[i];
            int known = e->hash == hashes[i] && e->length == t[i].length
                        && equal(t[i].bytes, keys + e->start, e->length);
            ids[first + i] = known ? e->id : step->fallback;
        }
    }
}
