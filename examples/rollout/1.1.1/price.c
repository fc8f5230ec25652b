#include <stdio.h>

enum { SHIPPING = 500 };

int main(void) {
  long pieces, cents;
  if (scanf("%ld %ld", &pieces, &cents) != 2) {
    fputs("write PIECES CENTS, such as 3 250\n", stderr);
    return 65; // another attempt would fail as well
  }
  if (pieces == 0)
    puts("total 0");
  else
    printf("total %ld, shipping %ld a piece\n", pieces * cents + SHIPPING, SHIPPING / pieces);
  return fflush(stdout) ? 1 : 0;
}
