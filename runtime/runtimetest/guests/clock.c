// Writes the wall clock and the monotonic clock in nanoseconds, then 16 random bytes in hex.
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(void) {
	struct timespec wall, mono;
	unsigned char random[16];
	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_MONOTONIC, &mono);
	if (getentropy(random, sizeof random) != 0) return 1;
	printf("%lld\n%lld\n", wall.tv_sec * 1000000000LL + wall.tv_nsec, mono.tv_sec * 1000000000LL + mono.tv_nsec);
	for (int i = 0; i < 16; i++) printf("%02x", random[i]);
	puts("");
}
