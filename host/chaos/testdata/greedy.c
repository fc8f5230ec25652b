// What a greedy tenant's guests do with memory of the host; the input names which.
#include "quern.h"

#define LARGE (15u << 20)

static char body[LARGE], list[256], input[32];

// json fills the body with an array of so many empty objects that a decoder takes thirty times its size.
static uint32_t json(void) {
	uint32_t at = 0;
	body[at++] = '[';
	while (at < LARGE - 4) {
		body[at++] = '{';
		body[at++] = '}';
		body[at++] = ',';
	}
	body[at++] = '0';
	body[at++] = ']';
	return at;
}

QUERN_HANDLER int32_t handle(void) {
	int32_t size = quern_input(input, sizeof input);
	if (size < 0) return quern_fail(QUERN_FATAL, "no input");
	switch (input[0]) {
	case 'p': // publishes to a subscription of its own, whose filter looks into it
		if (quern_publish(body, json(), QUERN_TEXT("{\"topic\":\"greedy\"}")) < 0) return quern_fail(QUERN_RETRY, "not published");
		break;
	case 'o': // has a large result
		return quern_output_write(body, json());
	case 'r': { // reads the large result of the task that it waited for, and sits on it
		quern_view all = quern_view_of(list, 0), id, end;
		int32_t length = quern_slot(quern_task_text(QUERN_TASK_DEPENDENCIES), list, sizeof list);
		if (length < 0) return quern_fail(QUERN_FATAL, "no dependencies");
		all.size = (uint32_t)length;
		while (quern_next_dependency(&all, &id, &end)) quern_dependency_result(QUERN_VIEW(id));
		quern_sleep(200);
		break;
	}
	case 'c': // saves and loads a checkpoint, and sits on it
		quern_checkpoint_save(body, 1u << 20);
		quern_checkpoint_load();
		quern_sleep(200);
		break;
	}
	return 0;
}
