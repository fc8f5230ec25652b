// UTF-8 as the Encoding Standard decodes it: each invalid sequence, as long as it could have become a valid one, is one
// U+FFFD.
#ifndef UTF8_H
#define UTF8_H

#include <stddef.h>

// Mended bytes are at most as many times as long.
enum { UTF8_MENDED = 3 };

// Returns how many bytes at the beginning are valid UTF-8.
size_t utf8_valid(const char *data, size_t size);

// Writes the bytes to mended, with U+FFFD for what is invalid, and returns how many there are.
size_t utf8_mend(const char *data, size_t size, char *mended);

// Replaces each lone surrogate, which QuickJS encodes as three bytes, by U+FFFD, which has as many.
void utf8_mend_surrogates(char *data, size_t size);

#endif
