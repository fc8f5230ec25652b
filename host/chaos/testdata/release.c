// One version of a plugin. VERSION is its number, and MANNER how it is bad: 0 not at all, 1 traps in every task, 2 fails
// in one of five, 3 works twice as long, 4 needs more memory than it may have in one of four, 5 lingers, so that its
// host can be ended while a task runs. Reads the number of the task from stdin, and writes the version to stdout.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(void) {
	long long number = 0;
	if (scanf("%lld", &number) != 1) return 65;
	volatile unsigned long long sum = 0;
	for (int i = 0; i < (MANNER == 3 ? 2000000 : 1000000); i++) sum += i;
	if (MANNER == 1) __builtin_trap();
	if (MANNER == 2 && number % 5 == 0) return 1;
	if (MANNER == 4 && number % 4 == 0) {
		for (;;) {
			volatile char *more = malloc(1 << 16); // which the compiler must not leave out
			if (!more) return 1;
			for (int i = 0; i < 1 << 16; i += 1 << 10) more[i] = 1;
		}
	}
	if (MANNER == 5) {
		struct timespec second = {.tv_sec = 1};
		nanosleep(&second, NULL);
	}
	printf("%d", VERSION);
	return 0;
}
