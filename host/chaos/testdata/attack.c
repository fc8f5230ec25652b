// What hostile guests do to a host; stdin names which.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>

static volatile unsigned long sink;

static __attribute__((noinline)) unsigned long descend(unsigned long n) {
	return n == 0 ? 0 : descend(n + 1) + n;
}

static __attribute__((noinline)) unsigned long branch(unsigned n) {
	return n == 0 ? sink : branch(n - 1) + branch(n - 1);
}

int main(void) {
	char what[32] = "";
	(void)scanf("%31s", what);
	if (strcmp(what, "loop") == 0)
		for (;;) sink++;
	if (strcmp(what, "recursion") == 0)
		for (;;) sink += descend(1);
	if (strcmp(what, "branches") == 0)
		sink += branch(60);
	if (strcmp(what, "fill") == 0)
		for (char *all = malloc(48 << 20);; sink++) memset(all, (int)sink, 48 << 20);
	if (strcmp(what, "copy") == 0)
		for (char *all = malloc(48 << 20);; sink++) memmove(all + sink % 2, all + 1 - sink % 2, 40 << 20);
	if (strcmp(what, "calls") == 0)
		for (;;) sched_yield();
	if (strcmp(what, "memory") == 0)
		for (;;) memset(malloc(1 << 20), 1, 1 << 20);
	if (strcmp(what, "misses") == 0)
		for (unsigned at = 0, *all = calloc(12 << 20, 4);; at = (at * 1103515245 + 12345 + all[at]) % (12 << 20)) all[at]++;
	return 2;
}
