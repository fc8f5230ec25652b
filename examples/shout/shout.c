#include <ctype.h>
#include <stdio.h>

int main(void) {
  for (int c; (c = getchar()) != EOF;)
    putchar(toupper(c));
  return ferror(stdin) || fflush(stdout) ? 1 : 0;
}
