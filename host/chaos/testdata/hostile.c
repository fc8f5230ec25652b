// What a hostile tenant's guests do; the first byte of the input says which.
#include "quern.h"

static char value[QUERN_MAX_VALUE], key[8] = "key-000", input[16];

QUERN_HANDLER int32_t handle(void) {
	int32_t size = quern_input(input, sizeof input);
	if (size < 0) return quern_fail(QUERN_FATAL, "no input");
	switch (input[0]) {
	case 'k': // fills its bucket, changes it and lists it
		for (int i = 0; i < 300; i++) {
			key[4] = (char)('0' + i / 100), key[5] = (char)('0' + i / 10 % 10), key[6] = (char)('0' + i % 10);
			quern_kv_set(QUERN_TEXT("bucket"), key, 7, value, i % 2 ? sizeof value : 1, 0);
			quern_kv_list(QUERN_TEXT("bucket"), NULL, 0, NULL, 0, 1000);
		}
		break;
	case 'c': // has as many children as it may, which all have as many
		while (quern_enqueue(QUERN_TEXT("hostile"), "c", 1, NULL, 0) >= 0);
		break;
	case 'l': // logs without end
		while (!quern_cancelled()) quern_say(QUERN_WARNING, "a line that says nothing, and says it again and again and again");
		break;
	case 'o': // has a large result
		for (int i = 0; i < 256; i++) quern_output_write(value, 1024);
		break;
	case 's': // takes long
		quern_sleep(60000);
		break;
	}
	return 0;
}
