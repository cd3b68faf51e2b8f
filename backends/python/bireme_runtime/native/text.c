#include "text.h"

int text_split(const uint8_t *payload, int64_t size, int64_t count, int64_t longest, text *texts) {
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        if (size - at < 4) return 0;
        int64_t length = load32(payload + at);
        at += 4;
        if (length > size - at || length > longest) return 0;
        texts[i].bytes = payload + at;
        texts[i].length = length;
        at += length;
    }
    return at == size;
}

static int is_tail(uint8_t byte) { return (byte & 0xC0) == 0x80; }

int text_all_ascii(const uint8_t *payload, int64_t size) {
    uint8_t all = 0;
    for (int64_t i = 0; i < size; i++) all |= payload[i];
    return all < 0x80;
}

int text_is_utf8(text t) {
    const uint8_t *p = t.bytes, *end = p + t.length;
    while (p < end) {
        /* Eight bytes at once; a stage has slack behind its last string. */
        const int64_t whole = end - p;
        const uint64_t mask = whole >= 8 ? ~(uint64_t)0 : ~(uint64_t)0 >> (64 - 8 * whole);
        if (!(load64(p) & mask & 0x8080808080808080u)) {
            p += 8;
            continue;
        }
        uint8_t lead = p[0];
        int64_t left = end - p;
        if (lead < 0x80) {
            p += 1;
        } else if (lead >= 0xC2 && lead <= 0xDF) {
            if (left < 2 || !is_tail(p[1])) return 0;
            p += 2;
        } else if (lead >= 0xE0 && lead <= 0xEF) {
            if (left < 3 || !is_tail(p[1]) || !is_tail(p[2])) return 0;
            if (lead == 0xE0 && p[1] < 0xA0) return 0; /* longer than needed */
            if (lead == 0xED && p[1] > 0x9F) return 0; /* a surrogate */
            p += 3;
        } else if (lead >= 0xF0 && lead <= 0xF4) {
            if (left < 4 || !is_tail(p[1]) || !is_tail(p[2]) || !is_tail(p[3])) return 0;
            if (lead == 0xF0 && p[1] < 0x90) return 0;
            if (lead == 0xF4 && p[1] > 0x8F) return 0; /* above U+10FFFF */
            p += 4;
        } else {
            return 0;
        }
    }
    return 1;
}

/* FarmHash: the mix depends on the length's class, as in farmhash.py. */

static const uint64_t K0 = 0xC3A5C85C97CB3127u, K1 = 0xB492B66FBE98F273u, K2 = 0x9AE16A3B2F90404Fu;

static inline uint64_t rotate(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }
static inline uint64_t fold(uint64_t word) { return word ^ word >> 47; }

static inline uint64_t pair(uint64_t low, uint64_t high, uint64_t multiplier) {
    uint64_t a = fold((low ^ high) * multiplier);
    return fold((high ^ a) * multiplier) * multiplier;
}

static inline uint64_t to_16(const uint8_t *s, size_t n) {
    if (n >= 8) {
        uint64_t multiplier = K2 + n * 2;
        uint64_t a = load64(s) + K2, b = load64(s + n - 8);
        return pair(rotate(b, 37) * multiplier + a, (rotate(a, 25) + b) * multiplier, multiplier);
    }
    if (n >= 4) {
        uint64_t head = load32(s), tail = load32(s + n - 4);
        return pair(n + (head << 3), tail, K2 + n * 2);
    }
    if (n > 0) {
        uint64_t y = s[0] + ((uint64_t)s[n >> 1] << 8), z = n + ((uint64_t)s[n - 1] << 2);
        return fold(y * K2 ^ z * K0) * K2;
    }
    return K2;
}

static inline uint64_t first_end(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return rotate(a + b, 43) + rotate(c, 30) + d;
}

static inline uint64_t second_end(uint64_t a, uint64_t b, uint64_t c) { return a + rotate(b + K2, 18) + c; }

static inline uint64_t to_32(const uint8_t *s, size_t n) {
    uint64_t multiplier = K2 + n * 2;
    uint64_t a = load64(s) * K1, b = load64(s + 8);
    uint64_t c = load64(s + n - 8) * multiplier, d = load64(s + n - 16) * K2;
    return pair(first_end(a, b, c, d), second_end(a, b, c), multiplier);
}

static inline uint64_t to_64(const uint8_t *s, size_t n) {
    uint64_t multiplier = K2 + n * 2;
    const uint8_t *tail = s + n - 32;
    uint64_t a = load64(s) * K2, b = load64(s + 8);
    uint64_t c = load64(tail + 24) * multiplier, d = load64(tail + 16) * K2;
    uint64_t y = first_end(a, b, c, d), z = pair(y, second_end(a, b, c), multiplier);
    uint64_t e = load64(s + 16) * multiplier, f = load64(s + 24);
    uint64_t g = (y + load64(tail)) * multiplier, h = (z + load64(tail + 8)) * multiplier;
    return pair(rotate(e + f, 43) + rotate(g, 30) + h, e + rotate(f + a, 18) + g, multiplier);
}

typedef struct {
    uint64_t x, y, z, v0, v1, w0, w1;
} folded;

static inline void half_round(const uint8_t *s, uint64_t a, uint64_t b, uint64_t *first, uint64_t *second) {
    a += load64(s);
    b = rotate(b + a + load64(s + 24), 21);
    uint64_t total = a + load64(s + 8) + load64(s + 16);
    *first = total + load64(s + 24);
    *second = b + rotate(total, 44) + a;
}

static inline void whole_round(folded *f, const uint8_t *s, uint64_t multiplier, uint64_t factor) {
    uint64_t x = rotate(f->x + f->y + f->v0 + load64(s + 8), 37) * multiplier;
    uint64_t y = rotate(f->y + f->v1 + load64(s + 48), 42) * multiplier;
    x ^= f->w1 * factor;
    y += f->v0 * factor + load64(s + 40);
    uint64_t z = rotate(f->z + f->w0, 33) * multiplier;
    uint64_t v1 = f->v1, w0 = f->w0, w1 = f->w1;
    half_round(s, v1 * multiplier, x + w0, &f->v0, &f->v1);
    half_round(s + 32, z + w1, y + load64(s + 16), &f->w0, &f->w1);
    f->x = z;
    f->y = y;
    f->z = x;
}

static uint64_t longer(const uint8_t *s, size_t n) {
    const uint64_t seed = 81;
    folded f = {0};
    f.y = seed * K1 + 113;
    f.z = fold(f.y * K2 + 113) * K2;
    f.x = seed * K2 + load64(s);
    for (size_t block = 0; block < (n - 1) / 64; block++) whole_round(&f, s + 64 * block, K1, 1);
    uint64_t multiplier = K1 + ((f.z & 0xFF) << 1);
    f.w0 += (n - 1) & 63;
    f.v0 += f.w0;
    f.w0 += f.v0;
    whole_round(&f, s + n - 64, multiplier, 9);
    return pair(pair(f.v0, f.w0, multiplier) + fold(f.y) * K0 + f.z, pair(f.v1, f.w1, multiplier) + f.x, multiplier);
}

uint64_t farmhash64(const uint8_t *s, size_t n) {
    if (n <= 16) return to_16(s, n);
    if (n <= 32) return to_32(s, n);
    if (n <= 64) return to_64(s, n);
    return longer(s, n);
}

/* SipHash-2-4 (Aumasson and Bernstein, 2012). */

static inline void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = (v[1] << 13 | v[1] >> 51) ^ v[0];
    v[3] = (v[3] << 16 | v[3] >> 48) ^ v[2];
    v[0] = v[0] << 32 | v[0] >> 32;
    v[2] += v[1];
    v[0] += v[3];
    v[1] = (v[1] << 17 | v[1] >> 47) ^ v[2];
    v[3] = (v[3] << 21 | v[3] >> 43) ^ v[0];
    v[2] = v[2] << 32 | v[2] >> 32;
}

static inline void sip_word(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

uint64_t siphash64(const uint8_t *s, size_t n, uint64_t key0, uint64_t key1) {
    uint64_t v[4] = {key0 ^ 0x736F6D6570736575u, key1 ^ 0x646F72616E646F6Du, key0 ^ 0x6C7967656E657261u,
                     key1 ^ 0x7465646279746573u};
    size_t whole = n & ~(size_t)7;
    for (size_t at = 0; at < whole; at += 8) sip_word(v, load64(s + at));
    uint8_t rest[8] = {0};
    memcpy(rest, s + whole, n - whole);
    sip_word(v, load64(rest) | (uint64_t)n << 56);
    v[2] ^= 0xFF;
    for (int i = 0; i < 4; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
