// Does what act of raquel.py does: step n of the input for attempt n, the last one for further attempts. A step is
// "STATUS MILLISECONDS TEXT": the delay to ask for or, for the status 0, how long to sleep; and the error.
#include <quern.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char input[4096], headers[4096];

QUERN_HANDLER int32_t quern_handle(void) {
	int32_t size = quern_input(input, sizeof input - 1);
	if (size <= 0) return 0;
	input[size] = 0;
	int32_t length = quern_slot(quern_task_text(QUERN_TASK_HEADERS), headers, sizeof headers);
	quern_view attempt;
	if (length < 0 || !quern_header(quern_view_of(headers, (uint32_t)length), QUERN_TEXT("raquel-attempt"), &attempt))
		return quern_fail(66, "no header raquel-attempt");
	char *step = input, *end;
	for (int n = atoi((const char *)attempt.data); n > 1 && (end = strchr(step, ';')); n--) step = end + 1;
	if ((end = strchr(step, ';'))) *end = 0;
	long status = strtol(step, &end, 10), ms = strtol(end, &end, 10);
	if (status == 1000) __builtin_trap();
	if (status == 0) {
		nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
		return 0;
	}
	if (ms > 0) quern_retry_after(ms);
	return quern_fail((int32_t)status, *end ? end + 1 : "");
}
