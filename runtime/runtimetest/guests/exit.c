// Exits with the code that stdin begins with; what follows it goes to stderr, and a line to stdout.
#include <stdio.h>
#include <stdlib.h>

int main(void) {
	int code = 0, c;
	if (scanf("%d", &code) != 1) return 1;
	while ((c = getchar()) != EOF) fputc(c, stderr);
	puts("output");
	fflush(stdout);
	exit(code);
}
