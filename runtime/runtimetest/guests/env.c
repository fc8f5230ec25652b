// Writes its arguments, one a line and prefixed with "arg ", then its environment to stdout.
#include <stdio.h>

extern char **environ;

int main(int argc, char **argv) {
	for (int i = 0; i < argc; i++) printf("arg %s\n", argv[i]);
	for (char **e = environ; e != NULL && *e != NULL; e++) puts(*e);
}
