// Publishes its input to orders.relayed with the task's completion. The last word is the publication's ID.
#include "quern.h"

static char body[200], options[300];

QUERN_HANDLER int32_t handle(void) {
	int32_t size = quern_input(body, sizeof body), word = size;
	if (size < 0) return quern_fail(QUERN_FATAL, "the input is too long");
	while (word > 0 && body[word - 1] != ' ') word--;
	quern_builder about = quern_object(options, sizeof options);
	quern_text_member(&about, "topic", QUERN_TEXT("orders.relayed"));
	quern_text_member(&about, "id", body + word, size - word);
	quern_end_object(&about);
	if (quern_publish(body, size, QUERN_VIEW(about)) < 0) return quern_fail(QUERN_FATAL, "it is not published");
	return QUERN_COMPLETE;
}
