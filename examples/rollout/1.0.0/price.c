#include <stdio.h>

int main(void) {
  long pieces, cents;
  if (scanf("%ld %ld", &pieces, &cents) != 2) {
    fputs("write PIECES CENTS, such as 3 250\n", stderr);
    return 65; // another attempt would fail as well
  }
  printf("total %ld\n", pieces * cents);
  return fflush(stdout) ? 1 : 0;
}
