#include "utf8.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";

// Returns the length of the valid sequence at p, or minus that of the invalid one.
static int sequence(const unsigned char *p, const unsigned char *end) {
	unsigned char first = *p, low = 0x80, high = 0xbf;
	int more;
	if (first < 0x80) return 1;
	if (first >= 0xc2 && first <= 0xdf) {
		more = 1;
	} else if (first >= 0xe0 && first <= 0xef) {
		more = 2;
		if (first == 0xe0) low = 0xa0;
		if (first == 0xed) high = 0x9f;
	} else if (first >= 0xf0 && first <= 0xf4) {
		more = 3;
		if (first == 0xf0) low = 0x90;
		if (first == 0xf4) high = 0x8f;
	} else {
		return -1;
	}
	for (int i = 1; i <= more; i++, low = 0x80, high = 0xbf) {
		if (p + i == end || p[i] < low || p[i] > high) return -i;
	}
	return 1 + more;
}

size_t utf8_valid(const char *data, size_t size) {
	const unsigned char *begin = (const unsigned char *)data, *end = begin + size, *p = begin;
	while (p < end) {
		// Eight bytes of ASCII at a time.
		unsigned long long eight;
		while (end - p >= 8 && (memcpy(&eight, p, 8), (eight & 0x8080808080808080u) == 0)) p += 8;
		if (p == end) break;
		int length = sequence(p, end);
		if (length < 0) break;
		p += length;
	}
	return (size_t)(p - begin);
}

size_t utf8_mend(const char *data, size_t size, char *mended) {
	const unsigned char *p = (const unsigned char *)data, *end = p + size;
	char *to = mended;
	while (p < end) {
		int length = sequence(p, end);
		const void *from = length > 0 ? (const void *)p : replacement;
		size_t written = length > 0 ? (size_t)length : 3;
		memcpy(to, from, written);
		to += written;
		p += length > 0 ? length : -length;
	}
	return (size_t)(to - mended);
}

void utf8_mend_surrogates(char *data, size_t size) {
	char *end = data + size;
	for (char *p = data; (p = memchr(p, 0xed, (size_t)(end - p))); p++) {
		if (end - p >= 3 && (unsigned char)p[1] >= 0xa0) memcpy(p, replacement, 3);
	}
}
