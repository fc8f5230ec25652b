// Reads "MILLISECONDS MANNER NAME", and tells the test when it begins and when it ends what only so many tasks may do at a
// time. In between it sleeps. Its log names the token of this run. Its manner is ok, or how it ends at first: slip or yield.
#include "quern.h"

static char input[256], url[128], token[16], head[512], request[256];

// tell posts /WHAT/NAME/TOKEN until it is answered.
static int tell(const char *what, quern_view name) {
	quern_builder to = quern_build(request, sizeof request);
	int32_t size = quern_slot(quern_config_get(QUERN_TEXT("url")), url, sizeof url);
	if (size < 0) return 0;
	quern_add(&to, url, (uint32_t)size);
	quern_add(&to, what, quern_length(what));
	quern_add(&to, QUERN_VIEW(name));
	quern_add(&to, "/", 1);
	quern_add_hex(&to, token, sizeof token);
	quern_builder fields = quern_object(head, sizeof head);
	quern_text_member(&fields, "method", QUERN_TEXT("POST"));
	quern_text_member(&fields, "url", to.data, to.size);
	quern_end_object(&fields);
	for (int i = 0; i < 1000; i++) {
		int32_t answer = quern_http(QUERN_VIEW(fields), NULL, 0);
		if (answer >= 0) return 1;
		if (answer != QUERN_EAGAIN) return 0;
		quern_sleep(20);
	}
	return 0;
}

QUERN_HANDLER int32_t handle(void) {
	int32_t size = quern_input(input, sizeof input - 1), at = 0;
	if (size < 0) return quern_fail(QUERN_FATAL, "no input");
	int64_t ms = 0;
	for (; input[at] >= '0' && input[at] <= '9'; at++) ms = ms * 10 + (input[at] - '0');
	char manner = input[++at];
	while (at < size && input[at++] != ' ');
	quern_view name = quern_view_of(input + at, (uint32_t)(size - at));
	quern_random(token, sizeof token);
	char said[64];
	quern_builder line = quern_build(said, sizeof said);
	quern_add(&line, QUERN_TEXT("token "));
	quern_add_hex(&line, token, sizeof token);
	quern_log(QUERN_INFO, QUERN_VIEW(line), NULL, 0);
	if (!tell("/enter/", name)) return quern_fail(QUERN_FATAL, "nobody hears it enter");
	quern_sleep(ms);
	if (!tell("/leave/", name)) return quern_fail(QUERN_FATAL, "nobody hears it leave");
	quern_output_write(QUERN_VIEW(name));
	if (manner == 's' && quern_number(QUERN_TASK_ATTEMPT) == 1) return quern_fail(QUERN_FAILED, "slipped");
	if (manner == 'y' && quern_number(QUERN_TASK_RESCHEDULES) == 0) return QUERN_RETRY;
	return QUERN_COMPLETE;
}
