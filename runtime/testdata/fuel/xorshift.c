// A loop of seven instructions: as tight as loops are.
#include <stdint.h>
#include <stdio.h>

int main(void) {
	int repeats;
	uint64_t x = 88172645463325252;
	if (scanf("%d", &repeats) != 1) return 65;
	while (repeats--)
		for (int i = 0; i < 1000000; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
	printf("%llx\n", (unsigned long long)x);
}
