// Looks for what an earlier task has left, then leaves as much as it can itself: see Residue in residue.go.
#include "quern.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define PAGE 65536

// A canary is a mark of seven bytes above the number of its task. Nothing holds the mark as a whole before a canary
// is written: the guest would find itself.
static const volatile uint64_t half = 0x5ad7e319c4860b, other = 0x92306ff8a1d5e4;

static uint64_t canary(int task) { return (half ^ other) << 8 | task; }

static void fill(volatile uint64_t *p, size_t bytes, int task) {
	for (size_t i = 0; i < bytes / sizeof *p; i++) p[i] = canary(task);
}

// Globals of WebAssembly's own, which are not in memory.
#define GLOBAL(name, wasm_type, c_type)                                                       \
	__asm__(".globaltype " #name ", " #wasm_type "\n" #name ":\n");                           \
	static c_type get_##name(void) {                                                          \
		c_type value;                                                                         \
		__asm__ volatile("global.get " #name "\nlocal.set %0" : "=r"(value));                 \
		return value;                                                                         \
	}                                                                                         \
	static void set_##name(c_type value) {                                                    \
		__asm__ volatile("local.get %0\nglobal.set " #name : : "r"(value));                   \
	}
GLOBAL(global_i32, i32, int32_t)
GLOBAL(global_i64, i64, int64_t)
GLOBAL(global_f32, f32, float)
GLOBAL(global_f64, f64, double)

static uint64_t zeros[512];           // in .bss
static uint64_t ones[512] = {[0] = 1, [511] = 1}; // in .data
static void *kept[6];                 // on the heap
static size_t pages;                  // of memory, when the instance was made

__attribute__((constructor)) static void start(void) { pages = __builtin_wasm_memory_size(0); }

static char report[1024];

static void found(const char *what, unsigned number, unsigned address) {
	size_t n = strlen(report);
	snprintf(report + n, sizeof report - n, "%s: %u at %#x\n", what, number, address);
}

struct word { uint64_t bits; } __attribute__((packed));

static void look_at_memory(uint32_t from, uint32_t to) {
	uint32_t first[256] = {0}, count[256] = {0};
	uint64_t mark = half, rest = other;
	for (uint32_t at = from; at <= to - sizeof(struct word); at += 4) {
		uint64_t word = ((volatile struct word *)at)->bits;
		if ((word >> 8 ^ mark) != rest) continue;
		if (!count[word & 0xff]++) first[word & 0xff] = at;
	}
	for (int task = 0; task < 256; task++)
		if (count[task]) found("canary of task", task, first[task]);
}

static void look(uint32_t stack_pointer) {
	extern char __heap_base; // where the stack begins, downwards
	look_at_memory(0, __builtin_wasm_memory_size(0) * PAGE);
	if (stack_pointer != (uint32_t)&__heap_base) found("stack pointer", stack_pointer, (uint32_t)&__heap_base);
	if (__builtin_wasm_memory_size(0) != pages) found("pages of memory", __builtin_wasm_memory_size(0), pages);
	if (get_global_i32() != 0) found("global", 32, 0);
	if (get_global_i64() != 0) found("global", 64, 0);
	if (get_global_f32() != 0) found("float global", 32, 0);
	if (get_global_f64() != 0) found("float global", 64, 0);
	size_t nonzero = 0, changed = 0, left = 0;
	for (size_t i = 0; i < COUNT(zeros); i++) nonzero += zeros[i] != 0, changed += ones[i] != (i == 0 || i == 511);
	for (size_t i = 0; i < COUNT(kept); i++) left += kept[i] != NULL;
	if (nonzero) found("static zeros", nonzero, (uint32_t)zeros);
	if (changed) found("static values", changed, (uint32_t)ones);
	if (left) found("kept", left, (uint32_t)kept);
}

// grow takes pages from the system, which are zero.
static uint64_t *grow(size_t more) {
	uint64_t *p = (void *)(__builtin_wasm_memory_grow(0, more) * PAGE);
	for (size_t i = 0; i < more * PAGE / sizeof *p; i++)
		if (p[i] != 0) return found("new memory", p[i] & 0xff, (uint32_t)&p[i]), p;
	return p;
}

__attribute__((noinline)) static void leave_on_stack(int task) {
	volatile uint64_t here[4096];
	fill(here, sizeof here, task);
}

static void leave(int task) {
	static const size_t sizes[] = {16, 104, 1000, 5000, 70000, 200000};
	void *dropped[COUNT(sizes)];
	leave_on_stack(task);
	fill(zeros, sizeof zeros, task);
	fill(ones, sizeof ones, task);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		fill(kept[i] = malloc(sizes[i]), sizes[i], task);
		fill(dropped[i] = malloc(sizes[i]), sizes[i], task);
	}
	for (size_t i = 0; i < COUNT(sizes); i++) free(dropped[i]);
	set_global_i32(canary(task));
	set_global_i64(canary(task));
	set_global_f32(canary(task));
	set_global_f64(canary(task));
}

static volatile int zero, one = 1;

// A division cannot be gathered into a loop, so this recursion takes WebAssembly's own stack.
__attribute__((noinline)) static int recurse(int n) { return recurse(n + 1) / one; }

// This one takes C's stack, below which its static data lies.
__attribute__((noinline)) static int descend(volatile uint64_t *from, int task) {
	volatile uint64_t here[64] = {*from};
	fill(here, sizeof here, task);
	return descend(here, task) / one;
}

static int exhaust(int task) {
	for (void *p; (p = malloc(1 << 20));) fill(p, 1 << 20, task);
	return 1;
}

static int end(char ending, int task) {
	switch (ending) {
	case 'f': return 65;
	case 't': __builtin_trap();
	case 'd': return one / zero;
	case 'r': return recurse(zero);
	case 's': return descend(zeros, task);
	case 'e': exit(7);
	case 'l': for (;;) zero = 0;
	case 'm': return exhaust(task);
	case 'g': fill(grow(9 * (1 << 20) / PAGE), 9 << 20, task); return 0;
	default: return ending == 'c' ? 0 : 64;
	}
}

__attribute__((noinline)) static int run(uint32_t stack_pointer) {
	uint8_t input[2];
	int32_t n = quern_input_read(0, input, sizeof input);
	if (n == 0 || n == 1) return 0;
	if (n < 0) found("input", n, (uint32_t)input); // the stack lies outside of memory
	look(stack_pointer);
	uint64_t *grown = grow(3);
	if (report[0]) {
		quern_output_write(report, strlen(report));
		quern_error_set(report, strlen(report));
		return 1;
	}
	fill(grown, 3 * PAGE, input[0]);
	leave(input[0]);
	return end(input[1], input[0]);
}

// Nothing is on the stack yet: the pointer is where the last task should have left it.
QUERN_HANDLER int32_t handle(void) {
	uint32_t stack_pointer;
	__asm__ volatile(".globaltype __stack_pointer, i32\nglobal.get __stack_pointer\nlocal.set %0" : "=r"(stack_pointer));
	return run(stack_pointer);
}
