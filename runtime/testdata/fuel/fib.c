// Calls and little else.
#include <stdio.h>

static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

int main(void) {
	int repeats, sum = 0;
	volatile int n = 25; // or it is called once for all
	if (scanf("%d", &repeats) != 1) return 65;
	while (repeats--) sum += fib(n);
	printf("%d\n", sum);
}
