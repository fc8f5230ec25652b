// SHA-1 and SHA-2 (FIPS 180-4).
#ifndef DIGEST_H
#define DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { DIGEST_MAX = 64 };

// Writes the digest of data, and returns its length: SHA-1 if bits is 1, SHA-2 if it is 256, 384 or 512; else 0.
size_t digest_sum(int bits, const uint8_t *data, size_t size, uint8_t sum[DIGEST_MAX]);

#endif
