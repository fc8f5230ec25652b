// Writes "ready" and a newline to stderr, then loops for ever.
#include <stdio.h>

int main(void) {
	fputs("ready\n", stderr);
	for (volatile unsigned n = 0;; n++) {
	}
}
