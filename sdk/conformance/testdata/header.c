// What quern.h has around the functions of quern_v1, in C and in C++. The handler completes if all of it is as it says;
// else its error is the number of the line.
#include "quern.h"

static int32_t failed(int64_t line) {
	char text[32];
	quern_builder b = quern_build(text, sizeof text);
	quern_add(&b, QUERN_TEXT("line "));
	quern_add_number(&b, line);
	quern_error_set(QUERN_VIEW(b));
	return QUERN_FAILED;
}

#define CHECK(condition) \
	if (!(condition)) return failed(__LINE__)

#define IS(builder, literal) quern_equal((builder).data, (builder).size, QUERN_TEXT(literal))

static int32_t builders(void) {
	char room[64];
	quern_builder b = quern_build(room, sizeof room);
	quern_add_number(&b, INT64_MIN);
	quern_add(&b, ",", 1);
	quern_add_number(&b, INT64_MAX);
	quern_add(&b, ",", 1);
	quern_add_number(&b, 0);
	CHECK(IS(b, "-9223372036854775808,9223372036854775807,0") && quern_built(&b) == 42);

	b = quern_build(room, sizeof room);
	quern_add_hex(&b, "\x00\x9f\xff", 3);
	CHECK(IS(b, "009fff"));

	b = quern_build(room, sizeof room);
	quern_add_string(&b, QUERN_TEXT("a\"\\\n\x01\x7f"));
	CHECK(IS(b, "\"a\\\"\\\\\\u000a\\u0001\x7f\""));
	b = quern_build(room, sizeof room);
	quern_add_string(&b, QUERN_TEXT("\xc3\xa9\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"));
	CHECK(IS(b, "\"\xc3\xa9\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""));
	static const char *const wrong[] = {
		"\x80", "\xc3", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
	};
	for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		b = quern_build(room, sizeof room);
		quern_add_string(&b, wrong[i], quern_length(wrong[i]));
		CHECK(b.size == 2 + 3 * quern_length(wrong[i]) && quern_equal(b.data + 1, 3, "\xef\xbf\xbd", 3));
	}
	return 0;
}

static int32_t objects(void) {
	char room[64];
	quern_builder b = quern_object(room, sizeof room);
	quern_text_member(&b, "a", "{", 1);
	quern_object_member(&b, "b");
	quern_number_member(&b, "c", -1);
	quern_member(&b, "d");
	quern_add(&b, QUERN_TEXT("[1,2]"));
	quern_end_object(&b);
	quern_text_member(&b, "e", NULL, 0);
	quern_end_object(&b);
	CHECK(IS(b, "{\"a\":\"{\",\"b\":{\"c\":-1,\"d\":[1,2]},\"e\":\"\"}"));

	b = quern_object(room, 8); // too little room
	quern_text_member(&b, "a", "long", 4);
	quern_end_object(&b);
	CHECK(quern_built(&b) == QUERN_ETOOBIG && b.size == 8);
	CHECK(quern_log(QUERN_INFO, QUERN_TEXT("cut"), QUERN_VIEW(b)) == QUERN_EINVAL);
	b = quern_object(room, 1);
	quern_member(&b, "a");
	quern_end_object(&b);
	CHECK(quern_built(&b) == QUERN_ETOOBIG && b.size == 1);
	CHECK(quern_log(QUERN_INFO, QUERN_TEXT("cut"), QUERN_VIEW(b)) == QUERN_EINVAL);
	return 0;
}

static int32_t answers(void) {
	static const char list[] = "\x01\x00\x00\x00" "a" "\x02\x00\x00\x00" "bc" "\x09\x00\x00\x00" "cut";
	quern_view rest = quern_view_of(list, sizeof list - 1), key, head, body;
	CHECK(quern_next_key(&rest, &key) && quern_equal(QUERN_VIEW(key), "a", 1));
	CHECK(quern_next_key(&rest, &key) && quern_equal(QUERN_VIEW(key), "bc", 2));
	CHECK(!quern_next_key(&rest, &key) && rest.size == 7);
	rest.size = 3;
	CHECK(!quern_next_key(&rest, &key));

	CHECK(quern_split_answer("\x0e\x00\x00\x00{\"status\":404}none", 22, &head, &body) == 404);
	CHECK(quern_equal(QUERN_VIEW(head), QUERN_TEXT("{\"status\":404}")) && quern_equal(QUERN_VIEW(body), "none", 4));
	CHECK(quern_split_answer("\x2b\x00\x00\x00{\"headers\":{\"status\":[\"5\"]}, \"status\": 200}", 47, &head, &body) == 200);
	CHECK(body.size == 0);
	CHECK(quern_split_answer("\x02\x00\x00\x00{}", 6, &head, &body) == QUERN_EINVAL);
	CHECK(quern_split_answer("\x09\x00\x00\x00\"status\":", 13, &head, &body) == QUERN_EINVAL);
	CHECK(quern_split_answer("\xff\xff\xff\xff{}", 6, &head, &body) == QUERN_EINVAL);
	CHECK(quern_split_answer("", 0, &head, &body) == QUERN_EINVAL);
	return 0;
}

static int32_t task(void) {
	char text[8] = "";
	CHECK(quern_input(text, 4) == QUERN_ETOOBIG && text[0] == 0);
	CHECK(quern_input(text, 5) == 5 && quern_equal(text, 5, "input", 5));
	CHECK(quern_slot(quern_task_text(QUERN_TASK_ID), text, 2) == QUERN_ETOOBIG && quern_equal(text, 2, "th", 2));
	CHECK(quern_result_size() == 7);
	CHECK(quern_slot(quern_task_text(QUERN_TASK_ID), text, 7) == 7 && quern_equal(text, 7, "the-one", 7));
	CHECK(quern_slot(quern_task_text(QUERN_TASK_KEY), NULL, 0) == 0);
	CHECK(quern_slot(quern_task_text(-1), text, sizeof text) == QUERN_EINVAL);
	CHECK(quern_slot(quern_config_get(QUERN_TEXT("none")), text, sizeof text) == QUERN_ENOTFOUND);
	CHECK(quern_number(QUERN_TASK_ATTEMPT) == 2 && quern_number(99) == 0);
	CHECK(quern_say(QUERN_WARNING, "mind the gap") == 0 && quern_write("out") == 0 && quern_write("put") == 0);
	CHECK(quern_fail(QUERN_FATAL, "why") == QUERN_FATAL);
	return 0;
}

QUERN_HANDLER int32_t handle(void) {
	if (quern_input_size() == 7) { // "no room": this traps
		quern_builder b = quern_object(NULL, 0);
		return quern_built(&b);
	}
	int32_t status = builders();
	if (status == 0) status = objects();
	if (status == 0) status = answers();
	return status ? status : task();
}
