// Copies the file that stdin names to stdout; exits with 66 if it cannot be read.
#include <stdio.h>

int main(void) {
	static char path[1024], buffer[64 << 10];
	if (!fgets(path, sizeof path, stdin)) return 64;
	FILE *in = fopen(path, "rb");
	if (!in) {
		perror(path);
		return 66;
	}
	size_t n;
	while ((n = fread(buffer, 1, sizeof buffer, in)) > 0) {
		if (fwrite(buffer, 1, n, stdout) != n) return 1;
	}
	if (ferror(in)) {
		perror(path);
		return 66;
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
