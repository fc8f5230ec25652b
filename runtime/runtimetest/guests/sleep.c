// Writes "ready" and a newline to stderr, then sleeps for as many milliseconds as stdin says.
#include <stdio.h>
#include <time.h>

int main(void) {
	long long ms = 0;
	if (scanf("%lld", &ms) != 1) return 1;
	fputs("ready\n", stderr);
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	nanosleep(&t, NULL);
	puts("awake");
}
