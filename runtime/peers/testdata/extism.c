// What Extism's PDK for C does with its functions for input and output.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXTISM(name) __attribute__((import_module("extism:host/env"), import_name(#name)))

EXTISM(input_length) uint64_t input_length(void);
EXTISM(input_load_u8) uint32_t input_load_u8(uint64_t offset);
EXTISM(input_load_u64) uint64_t input_load_u64(uint64_t offset);
EXTISM(alloc) uint64_t extism_alloc(uint64_t size);
EXTISM(store_u8) void store_u8(uint64_t at, uint32_t value);
EXTISM(store_u64) void store_u64(uint64_t at, uint64_t value);
EXTISM(output_set) void output_set(uint64_t at, uint64_t size);

static char *input(void) {
	size_t n = input_length(), i = 0;
	char *p = malloc(n + 1);
	for (; i + 8 <= n; i += 8) {
		uint64_t word = input_load_u64(i);
		memcpy(p + i, &word, 8);
	}
	for (; i < n; i++) p[i] = input_load_u8(i);
	p[n] = 0;
	return p;
}

static void output(const char *p, size_t n) {
	uint64_t to = extism_alloc(n);
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		uint64_t word;
		memcpy(&word, p + i, 8);
		store_u64(to + i, word);
	}
	for (; i < n; i++) store_u8(to + i, (uint8_t)p[i]);
	output_set(to, n);
}

