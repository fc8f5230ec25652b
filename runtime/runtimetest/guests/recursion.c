// Calls itself for ever. A division cannot be gathered into a loop, so this is a real recursion.
static volatile int one = 1;

__attribute__((noinline)) static int recurse(int n) { return recurse(n + 1) / one; }

int main(void) {
	return recurse(one);
}
