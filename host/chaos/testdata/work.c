// Reads "MILLISECONDS MANNER NAME" from stdin, sleeps so long, writes the name to stdout and ends in
// that manner: ok, fail (worth another attempt), never (not worth one), later (puts itself off, each
// time) or trap.
#include <stdio.h>
#include <string.h>
#include <time.h>

int main(void) {
	long long ms = 0;
	char manner[16] = "", name[128] = "";
	if (scanf("%lld %15s %127s", &ms, manner, name) != 3) return 65;
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	nanosleep(&t, NULL);
	fputs(name, stdout);
	fflush(stdout);
	if (!strcmp(manner, "fail")) return 1;
	if (!strcmp(manner, "never")) return 65;
	if (!strcmp(manner, "later")) return 75;
	if (!strcmp(manner, "trap")) __builtin_trap();
	return 0;
}
