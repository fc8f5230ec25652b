// Writes as many bytes to stdout as stdin says, or without end if it says nothing.
#include <stdio.h>
#include <string.h>

int main(void) {
	static char chunk[4096];
	long long left = -1;
	memset(chunk, 'x', sizeof chunk);
	(void)scanf("%lld", &left);
	while (left != 0) {
		size_t n = left < 0 || left > (long long)sizeof chunk ? sizeof chunk : (size_t)left;
		if (fwrite(chunk, 1, n, stdout) != n) return 1;
		if (left > 0) left -= n;
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
