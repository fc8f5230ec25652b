// Books its input, the name of its task, in a database, enqueues a child, and fails half of the time after that.
#include "quern.h"

QUERN_HANDLER int32_t book(void) {
	char name[64], answer[1024], room[128], body[128], child[128];
	int32_t size = quern_input(name, sizeof name);
	if (size < 0) return quern_fail(QUERN_FATAL, "the input is longer than a name");
	quern_builder values = quern_build(room, sizeof room);
	quern_add_value(&values, name, (uint32_t)size);
	size = quern_slot(quern_sql(QUERN_TEXT("shop"), QUERN_TEXT("INSERT INTO bookings VALUES ($1)"), QUERN_VIEW(values)), answer,
		sizeof answer);
	quern_rows rows;
	if (size < 0 || quern_split_rows(answer, (uint32_t)size, &rows) < 0) return quern_fail(1, "the database refuses");

	size = quern_input(name, sizeof name);
	quern_builder parameters = quern_build(body, sizeof body);
	quern_add(&parameters, "0 ok child-", 11);
	quern_add(&parameters, name, (uint32_t)size);
	quern_builder id = quern_build(room, sizeof room);
	quern_add(&id, "child-", 6);
	quern_add(&id, name, (uint32_t)size);
	quern_add(&id, "", 1);
	quern_builder options = quern_object(child, sizeof child);
	quern_text_member(&options, "id", room, (uint32_t)(6 + size));
	quern_end_object(&options);
	if (quern_enqueue(QUERN_TEXT("alpha"), QUERN_VIEW(parameters), QUERN_VIEW(options)) < 0) return quern_fail(1, "no child");

	unsigned char coin;
	quern_random(&coin, 1);
	if (coin & 1) return quern_fail(1, "the books fell off the table");
	return quern_output_write(name, (uint32_t)size);
}
