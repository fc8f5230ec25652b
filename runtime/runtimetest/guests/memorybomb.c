// Takes memory, a MiB at a time, and touches it, until there is none or stdin's number of MiB is
// reached. Exits with 1 if there is none, with a line on stderr that says after how many MiB.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
	long most = 1L << 30;
	(void)scanf("%ld", &most);
	for (long n = 0; n < most; n++) {
		char *p = malloc(1 << 20);
		if (p == NULL) {
			fprintf(stderr, "no memory after %ld MiB\n", n);
			return 1;
		}
		memset(p, 1, 1 << 20);
		*(char *volatile *)&p = p;
	}
	puts("enough");
}
