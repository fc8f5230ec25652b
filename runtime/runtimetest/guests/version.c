// Writes the version that it was built with to stdout, -DVERSION="...".
#include <stdio.h>

int main(void) {
	fputs(VERSION, stdout);
}
