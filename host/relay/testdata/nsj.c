// Does what act of nsj.py does. The text of a publication is in the JSON of a subscriber's task.
#include <quern.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char input[65536], name[256];

QUERN_HANDLER int32_t quern_handle(void) {
	int32_t size = quern_input(input, sizeof input - 1);
	if (size <= 0) return 0;
	input[size] = 0;
	char *text = input, *published = strstr(input, "\"publication\" : \"");
	if (published) {
		text = published + strlen("\"publication\" : \"");
		text[strcspn(text, "\"")] = 0;
	}
	int32_t length = quern_slot(quern_task_text(QUERN_TASK_QUEUE), name, sizeof name - 1);
	int dead = length > 5 && !memcmp(name + length - 5, ".dead", 5);
	char *message = strchr(text, ' ');
	if (message) *message++ = 0;
	else message = text + strlen(text);
	if (!strcmp(text, "fail")) return dead && !strncmp(message, "alive", 5) ? 0 : quern_fail(66, message);
	if (!strcmp(text, "fatal")) return quern_fail(QUERN_FATAL, message);
	if (!strcmp(text, "return")) return quern_output_write(message, (uint32_t)strlen(message));
	if (!strcmp(text, "sleep")) {
		long ms = atol(message);
		nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
	}
	return 0;
}
