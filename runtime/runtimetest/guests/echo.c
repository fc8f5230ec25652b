// Copies stdin to stdout.
#include <stdio.h>

int main(void) {
	static char buffer[64 << 10];
	size_t n;
	while ((n = fread(buffer, 1, sizeof buffer, stdin)) > 0) {
		if (fwrite(buffer, 1, n, stdout) != n) return 1;
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
