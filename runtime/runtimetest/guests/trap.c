// Traps in the way that stdin names.
#include <limits.h>
#include <stdio.h>
#include <string.h>

static volatile int zero = 0, one = 1, minus_one = -1, smallest = INT_MIN;
static volatile float not_a_number = 0.0f;
static int add(int a, int b) { return a + b; }
static int (*volatile function)(int, int) = add;

// A division cannot be gathered into a loop, so this recursion takes WebAssembly's own stack.
__attribute__((noinline)) static int recurse(int n) { return recurse(n + 1) / one; }

// This one takes C's stack, which lies in the guest's memory.
__attribute__((noinline)) static int descend(volatile int *n) {
	volatile int here[64] = {*n};
	return descend(here) / one;
}

int main(void) {
	char how[32] = "";
	(void)scanf("%31s", how);
	fprintf(stderr, "about to try %s\n", how);
	if (!strcmp(how, "unreachable")) __builtin_trap();
	if (!strcmp(how, "divide")) return one / zero;
	if (!strcmp(how, "overflow")) return smallest / minus_one;
	if (!strcmp(how, "conversion")) return __builtin_wasm_trunc_s_i32_f32(not_a_number / not_a_number);
	if (!strcmp(how, "memory")) return *(volatile int *)0xfffffff0u;
	if (!strcmp(how, "null")) return ((int (*volatile)(int, int))(long)zero)(1, 2);
	if (!strcmp(how, "table")) return ((int (*volatile)(int, int))100000)(1, 2);
	if (!strcmp(how, "mismatch")) return ((int (*volatile)(double))function)(1.0);
	if (!strcmp(how, "recursion")) return recurse(zero);
	if (!strcmp(how, "descent")) return descend(&zero);
	return 99;
}
