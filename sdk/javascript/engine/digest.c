#include "digest.h"

#include <stdbool.h>
#include <string.h>

// The first 32 bits of each are the constants of SHA-256.
static const uint64_t constants[80] = {
	0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc,
	0x3956c25bf348b538, 0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118,
	0xd807aa98a3030242, 0x12835b0145706fbe, 0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2,
	0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235, 0xc19bf174cf692694,
	0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
	0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5,
	0x983e5152ee66dfab, 0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4,
	0xc6e00bf33da88fc2, 0xd5a79147930aa725, 0x06ca6351e003826f, 0x142929670a0e6e70,
	0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed, 0x53380d139d95b3df,
	0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
	0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30,
	0xd192e819d6ef5218, 0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8,
	0x19a4c116b8d2d0c8, 0x1e376c085141ab53, 0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8,
	0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373, 0x682e6ff3d6b2b8a3,
	0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
	0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b,
	0xca273eceea26619c, 0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178,
	0x06f067aa72176fba, 0x0a637dc5a2c898a6, 0x113f9804bef90dae, 0x1b710b35131c471b,
	0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc, 0x431d67c49c100d4c,
	0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817,
};

static uint32_t left(uint32_t x, int n) { return x << n | x >> (32 - n); }
static uint32_t right32(uint32_t x, int n) { return x >> n | x << (32 - n); }
static uint64_t right64(uint64_t x, int n) { return x >> n | x << (64 - n); }

static uint64_t load(const uint8_t *p, int bytes) {
	uint64_t x = 0;
	for (int i = 0; i < bytes; i++) x = x << 8 | p[i];
	return x;
}

static void store(uint8_t *p, uint64_t x, int bytes) {
	for (int i = bytes; i > 0; x >>= 8) p[--i] = (uint8_t)x;
}

static void block1(uint64_t state[8], const uint8_t *p) {
	uint32_t w[80], s[5];
	for (int i = 0; i < 16; i++) w[i] = (uint32_t)load(p + 4 * i, 4);
	for (int i = 16; i < 80; i++) w[i] = left(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (int i = 0; i < 5; i++) s[i] = (uint32_t)state[i];
	for (int i = 0; i < 80; i++) {
		uint32_t f, k;
		if (i < 20) {
			f = (s[1] & s[2]) | (~s[1] & s[3]);
			k = 0x5a827999;
		} else if (i < 40) {
			f = s[1] ^ s[2] ^ s[3];
			k = 0x6ed9eba1;
		} else if (i < 60) {
			f = (s[1] & s[2]) | (s[1] & s[3]) | (s[2] & s[3]);
			k = 0x8f1bbcdc;
		} else {
			f = s[1] ^ s[2] ^ s[3];
			k = 0xca62c1d6;
		}
		uint32_t next = left(s[0], 5) + f + s[4] + k + w[i];
		s[4] = s[3];
		s[3] = s[2];
		s[2] = left(s[1], 30);
		s[1] = s[0];
		s[0] = next;
	}
	for (int i = 0; i < 5; i++) state[i] = (uint32_t)state[i] + s[i];
}

// SHA-256 and SHA-512 differ in the width of words, the number of rounds, and the rotations.
#define SHA2(name, word, bytes, rounds, right, shift, a1, a2, a3, e1, e2, e3, x1, x2, x3, y1, y2, y3) \
	static void name(uint64_t state[8], const uint8_t *p) { \
		word w[rounds], s[8]; \
		for (int i = 0; i < 16; i++) w[i] = (word)load(p + bytes * i, bytes); \
		for (int i = 16; i < rounds; i++) { \
			word x = w[i - 15], y = w[i - 2]; \
			w[i] = w[i - 16] + w[i - 7] + (right(x, x1) ^ right(x, x2) ^ x >> x3) + (right(y, y1) ^ right(y, y2) ^ y >> y3); \
		} \
		for (int i = 0; i < 8; i++) s[i] = (word)state[i]; \
		for (int i = 0; i < rounds; i++) { \
			word e = s[4], a = s[0]; \
			word t1 = s[7] + (right(e, e1) ^ right(e, e2) ^ right(e, e3)) + ((e & s[5]) ^ (~e & s[6])) \
				+ (word)(constants[i] >> shift) + w[i]; \
			word t2 = (right(a, a1) ^ right(a, a2) ^ right(a, a3)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2])); \
			memmove(s + 1, s, 7 * sizeof s[0]); \
			s[4] += t1; \
			s[0] = t1 + t2; \
		} \
		for (int i = 0; i < 8; i++) state[i] = (word)((word)state[i] + s[i]); \
	}

SHA2(block256, uint32_t, 4, 64, right32, 32, 2, 13, 22, 6, 11, 25, 7, 18, 3, 17, 19, 10)
SHA2(block512, uint64_t, 8, 80, right64, 0, 28, 34, 39, 14, 18, 41, 1, 8, 7, 19, 61, 6)

// An algorithm: its block function, the bytes of a block, of a word and of the result, and the state it begins with.
typedef struct {
	int bits;
	void (*block)(uint64_t state[8], const uint8_t *p);
	int block_size, word, result;
	uint64_t begin[8];
} Algorithm;

static const Algorithm algorithms[] = {
	{1, block1, 64, 4, 20, {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}},
	{256, block256, 64, 4, 32, {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
		0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}},
	{384, block512, 128, 8, 48, {
		0xcbbb9d5dc1059ed8, 0x629a292a367cd507, 0x9159015a3070dd17, 0x152fecd8f70e5939,
		0x67332667ffc00b31, 0x8eb44a8768581511, 0xdb0c2e0d64f98fa7, 0x47b5481dbefa4fa4}},
	{512, block512, 128, 8, 64, {
		0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
		0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179}},
};

size_t digest_sum(int bits, const uint8_t *data, size_t size, uint8_t sum[DIGEST_MAX]) {
	const Algorithm *a = NULL;
	for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
		if (algorithms[i].bits == bits) a = &algorithms[i];
	}
	if (!a) return 0;
	uint64_t state[8];
	memcpy(state, a->begin, sizeof state);
	size_t at = 0, block = (size_t)a->block_size;
	for (; size - at >= block; at += block) a->block(state, data + at);
	// The rest, a bit that is set, zeros, and the length in bits.
	uint8_t last[256] = {0};
	size_t rest = size - at, length = rest + 1 + 2 * (size_t)a->word > block ? 2 * block : block;
	if (rest > 0) memcpy(last, data + at, rest);
	last[rest] = 0x80;
	store(last + length - 8, (uint64_t)size * 8, 8);
	for (size_t i = 0; i < length; i += block) a->block(state, last + i);
	for (int i = 0; i * a->word < a->result; i++) store(sum + i * a->word, state[i], a->word);
	return (size_t)a->result;
}
