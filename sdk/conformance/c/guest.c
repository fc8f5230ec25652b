// The guest of the conformance kit in C: it makes the calls that its input lists, one a line, and writes what each was
// answered. README.md, one folder up, says how they are written.
#include "quern.h"

enum { WORDS = 20, SHOWN = 64 };

static char input[4 << 20], decoded[20 << 20], room[2 << 20];
static uint32_t used;           // of decoded
static quern_view current;      // the line
static int32_t ending;          // what the handler returns
static int ended;               // the last call was one that ends
static char remembered[SHOWN];  // by a task
static uint32_t remembered_size;

static const char *const errors[] = {
	"ok", "EINVAL", "EFAULT", "EDENIED", "ENOTFOUND", "ETOOBIG", "EQUOTA", "ECONFLICT", "ECANCELED", "EAGAIN", "ESTATE", "ELIMIT",
};

// ---- Words ----

static int is(quern_view word, const char *text) { return quern_equal(word.data, word.size, text, quern_length(text)); }

static int64_t number(quern_view word) {
	uint32_t at = 0;
	uint64_t n = 0;
	if (at < word.size && word.data[at] == '$') {
		n = (uint64_t)__builtin_wasm_memory_size(0) << 16;
		at++;
	}
	int negative = at < word.size && word.data[at] == '-';
	uint64_t digits = 0;
	for (at += negative; at < word.size; at++) digits = digits * 10 + (uint64_t)(word.data[at] - '0');
	return (int64_t)(n + (negative ? 0 - digits : digits));
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static uint32_t hex(char c) { return (uint32_t)(is_digit(c) ? c - '0' : c - 'a' + 10); }

// What a word stands for: %61 is a byte, a trailing *3 repeats all before it, and - alone is nothing.
static quern_view text(quern_view word) {
	quern_view result = quern_view_of(decoded + used, 0);
	uint32_t start = used, end = word.size, times = 1;
	if (is(word, "-")) return result;
	while (end > 0 && is_digit(word.data[end - 1])) end--;
	if (end > 1 && end < word.size && word.data[end - 1] == '*') {
		times = (uint32_t)number(quern_view_of(word.data + end, word.size - end));
		end--;
	} else {
		end = word.size;
	}
	for (uint32_t at = 0; at < end; at++) {
		char c = word.data[at];
		if (c == '%') {
			c = (char)(hex(word.data[at + 1]) << 4 | hex(word.data[at + 2]));
			at += 2;
		}
		decoded[used++] = c;
	}
	uint32_t unit = used - start;
	result.size = unit * times;
	for (; used < start + result.size; used++) decoded[used] = decoded[used - unit];
	return result;
}

// ---- Answers ----

static void put(const void *data, uint32_t size) {
	if (quern_output_write(data, size) < 0) {
		ending = QUERN_FAILED;
		ended = 1;
	}
}

static void say(const char *zero_terminated) { put(zero_terminated, quern_length(zero_terminated)); }

static void show(const void *data, uint32_t size) {
	char digits[20];
	quern_builder b = quern_build(digits, sizeof digits);
	say(" ");
	if (size <= SHOWN) {
		put(data, size);
		return;
	}
	quern_add(&b, QUERN_TEXT("#"));
	quern_add_number(&b, size);
	put(QUERN_VIEW(b));
}

static void show_number(int64_t n) {
	char digits[20];
	quern_builder b = quern_build(digits, sizeof digits);
	quern_add_number(&b, n);
	show(QUERN_VIEW(b));
}

static void begin(quern_view verb, int32_t answer) {
	put(QUERN_VIEW(verb));
	say(" ");
	say(errors[answer < 0 ? -answer : 0]);
}

static void tell(quern_view verb, int32_t answer) {
	begin(verb, answer);
	say("\n");
}

static void tell_number(quern_view verb, int32_t answer, int64_t n) {
	begin(verb, answer);
	if (answer >= 0) show_number(n);
	say("\n");
}

static void tell_slot(quern_view verb, int32_t answer) {
	int32_t size = quern_slot(answer, room, sizeof room);
	begin(verb, size);
	if (size >= 0) show(room, (uint32_t)size);
	say("\n");
}

// ---- Calls ----

static void call_write(const quern_view *w) {
	quern_view t = text(w[1]);
	put(QUERN_VIEW(t));
}

static void call_end(const quern_view *w) {
	quern_view why = text(w[2]);
	if (why.size > 0) quern_error_set(QUERN_VIEW(why));
	ending = (int32_t)number(w[1]);
	ended = 1;
}

static void call_retry(const quern_view *w) {
	quern_view why = text(w[2]);
	quern_error_set(QUERN_VIEW(why));
	quern_retry_after(number(w[1]));
	ending = QUERN_RETRY;
	ended = 1;
}

static void call_trap(const quern_view *w) {
	(void)w;
	__builtin_trap();
}

static void call_size(const quern_view *w) { tell_number(w[0], 0, quern_input_size()); }

// The input's FNV-1a of 32 bits, read in pieces.
static void call_sum(const quern_view *w) {
	uint32_t sum = 2166136261u;
	unsigned char piece[1000];
	for (int32_t at = 0, n; (n = quern_input_read((uint32_t)at, piece, sizeof piece)) > 0; at += n) {
		for (int32_t i = 0; i < n; i++) sum = (sum ^ piece[i]) * 16777619u;
	}
	tell_number(w[0], 0, sum);
}

static void call_text(const quern_view *w) { tell_slot(w[0], quern_task_text((int32_t)number(w[1]))); }

static void call_header(const quern_view *w) {
	int32_t size = quern_slot(quern_task_text(QUERN_TASK_HEADERS), room, sizeof room);
	quern_view value = quern_view_of(room, 0);
	if (size >= 0) quern_header(quern_view_of(room, (uint32_t)size), QUERN_VIEW(w[1]), &value);
	begin(w[0], size);
	if (size >= 0) show(QUERN_VIEW(value));
	say("\n");
}

static void call_number(const quern_view *w) {
	int64_t n = 0;
	int32_t answer = quern_task_number((int32_t)number(w[1]), &n);
	tell_number(w[0], answer, n);
}

// In minutes: the host's clock and Redis's differ.
static void call_deadline(const quern_view *w) { tell_number(w[0], 0, (quern_number(QUERN_TASK_DEADLINE) + 30000) / 60000); }

static void call_cancelled(const quern_view *w) { tell_number(w[0], 0, quern_cancelled()); }

static void call_await(const quern_view *w) {
	quern_progress(0, QUERN_TEXT("waiting"));
	while (!quern_cancelled()) quern_sleep(5);
	tell(w[0], 0);
}

static void call_log(const quern_view *w) {
	quern_builder fields = quern_object(room, sizeof room);
	quern_view line = text(w[2]);
	for (int i = 3; w[i].size > 0; i += 2) {
		char name[SHOWN];
		quern_view key = text(w[i]), value = text(w[i + 1]);
		quern_builder b = quern_build(name, sizeof name);
		quern_add(&b, QUERN_VIEW(key));
		quern_add(&b, "", 1); // the zero
		quern_text_member(&fields, name, QUERN_VIEW(value));
	}
	quern_end_object(&fields);
	if (w[3].size == 0) fields.size = 0;
	tell(w[0], quern_log((int32_t)number(w[1]), QUERN_VIEW(line), QUERN_VIEW(fields)));
}

static void call_progress(const quern_view *w) {
	quern_view message = text(w[2]);
	tell(w[0], quern_progress((double)number(w[1]) / 100, QUERN_VIEW(message)));
}

static void call_save(const quern_view *w) {
	quern_view value = text(w[1]);
	tell(w[0], quern_checkpoint_save(QUERN_VIEW(value)));
}

static void call_load(const quern_view *w) { tell_slot(w[0], quern_checkpoint_load()); }

static void call_get(const quern_view *w) {
	quern_view bucket = text(w[1]), key = text(w[2]);
	tell_slot(w[0], quern_kv_get(QUERN_VIEW(bucket), QUERN_VIEW(key)));
}

static void call_set(const quern_view *w) {
	quern_view bucket = text(w[1]), key = text(w[2]), value = text(w[3]);
	tell(w[0], quern_kv_set(QUERN_VIEW(bucket), QUERN_VIEW(key), QUERN_VIEW(value), number(w[4])));
}

static void call_delete(const quern_view *w) {
	quern_view bucket = text(w[1]), key = text(w[2]);
	int32_t answer = quern_kv_delete(QUERN_VIEW(bucket), QUERN_VIEW(key));
	tell_number(w[0], answer, answer);
}

static void call_increment(const quern_view *w) {
	quern_view bucket = text(w[1]), key = text(w[2]);
	int64_t sum = 0;
	int32_t answer = quern_kv_increment(QUERN_VIEW(bucket), QUERN_VIEW(key), number(w[3]), &sum);
	tell_number(w[0], answer, sum);
}

// The present value is told where there is another one than was believed.
static void call_swap(const quern_view *w) {
	quern_view bucket = text(w[1]), key = text(w[2]), old = text(w[3]), value = text(w[4]);
	if (is(w[3], "!")) old.size = QUERN_ABSENT;
	int32_t answer = quern_kv_swap(QUERN_VIEW(bucket), QUERN_VIEW(key), QUERN_VIEW(old), QUERN_VIEW(value), number(w[5]));
	begin(w[0], answer == QUERN_ENOTFOUND ? (int32_t)QUERN_ECONFLICT : answer);
	if (answer == QUERN_ECONFLICT) show(room, (uint32_t)quern_slot(quern_result_size(), room, sizeof room));
	say("\n");
}

static void call_list(const quern_view *w) {
	quern_view bucket = text(w[1]), prefix = text(w[2]), after = text(w[3]), key;
	int32_t size = quern_slot(
		quern_kv_list(QUERN_VIEW(bucket), QUERN_VIEW(prefix), QUERN_VIEW(after), (int32_t)number(w[4])), room, sizeof room);
	quern_view list = quern_view_of(room, size < 0 ? 0 : (uint32_t)size);
	begin(w[0], size);
	while (quern_next_key(&list, &key)) show(QUERN_VIEW(key));
	say("\n");
}

// The value of the answer's header x-answer. Header values of the kit hold nothing that JSON escapes.
static quern_view header(quern_view head) {
	static const char name[] = "\"x-answer\":[\"";
	for (uint32_t at = 0; at + sizeof name <= head.size; at++) {
		const char *value = head.data + at + sizeof name - 1;
		if (!quern_equal(head.data + at, sizeof name - 1, QUERN_TEXT("\"x-answer\":[\""))) continue;
		uint32_t size = 0;
		while (value[size] != '"') size++;
		return quern_view_of(value, size);
	}
	return quern_view_of(NULL, 0);
}

static void call_http(const quern_view *w) {
	quern_view method = text(w[1]), url = text(w[2]), value = text(w[3]), body = text(w[4]), head;
	quern_builder request = quern_object(room, sizeof room);
	quern_text_member(&request, "method", QUERN_VIEW(method));
	quern_text_member(&request, "url", QUERN_VIEW(url));
	quern_object_member(&request, "headers");
	quern_text_member(&request, "X-Ask", QUERN_VIEW(value));
	quern_end_object(&request);
	quern_number_member(&request, "timeout_ms", number(w[5]));
	quern_end_object(&request);
	int32_t size = quern_slot(quern_http(QUERN_VIEW(request), QUERN_VIEW(body)), room, sizeof room);
	begin(w[0], size);
	if (size >= 0) {
		show_number(quern_split_answer(room, (uint32_t)size, &head, &body));
		quern_view answer = header(head);
		show(QUERN_VIEW(answer));
		show(QUERN_VIEW(body));
	}
	say("\n");
}

static void call_config(const quern_view *w) {
	quern_view name = text(w[1]);
	tell_slot(w[0], quern_config_get(QUERN_VIEW(name)));
}

static void call_secret(const quern_view *w) {
	quern_view name = text(w[1]);
	tell_slot(w[0], quern_secret_get(QUERN_VIEW(name)));
}

// A time that is one: the real one is after 2023, the other is later by a millisecond after one.
static void call_clock(const quern_view *w) {
	int64_t first = 0, second = 0;
	int32_t id = (int32_t)number(w[1]), answer = quern_clock(id, &first);
	quern_sleep(1);
	if (answer == 0) answer = quern_clock(id, &second);
	begin(w[0], answer);
	if (id == QUERN_CLOCK_REAL && first < 1700000000 * INT64_C(1000000000)) say(" too early");
	if (id == QUERN_CLOCK_MONOTONIC && second - first < 1000000) say(" back");
	say("\n");
}

static void call_sleep(const quern_view *w) {
	int64_t before = 0, after = 0;
	quern_clock(QUERN_CLOCK_MONOTONIC, &before);
	begin(w[0], quern_sleep(number(w[1])));
	quern_clock(QUERN_CLOCK_MONOTONIC, &after);
	if (after - before < number(w[1]) * 1000000) say(" too short");
	say("\n");
}

static void call_random(const quern_view *w) {
	unsigned char bytes[8];
	char digits[16];
	quern_builder b = quern_build(digits, sizeof digits);
	int32_t answer = quern_random(bytes, sizeof bytes);
	quern_add_hex(&b, bytes, sizeof bytes);
	begin(w[0], answer);
	show(QUERN_VIEW(b));
	say("\n");
}

static void call_remember(const quern_view *w) {
	quern_view t = text(w[1]);
	begin(w[0], 0);
	show(remembered, remembered_size);
	say("\n");
	quern_builder b = quern_build(remembered, sizeof remembered);
	quern_add(&b, QUERN_VIEW(t));
	remembered_size = b.size;
}

static void call_enqueue(const quern_view *w) {
	quern_view queue = text(w[1]), body = text(w[2]);
	quern_builder options = quern_object(room, sizeof room);
	for (int i = 3; w[i].size > 0; i += 2) {
		quern_view value = text(w[i + 1]);
		if (is(w[i], "id")) quern_text_member(&options, "id", QUERN_VIEW(value));
		if (is(w[i], "key")) quern_text_member(&options, "key", QUERN_VIEW(value));
		if (is(w[i], "priority")) quern_number_member(&options, "priority", number(value));
		if (is(w[i], "delay")) quern_number_member(&options, "delay_ms", number(value));
		if (is(w[i], "at")) quern_number_member(&options, "at_ms", number(value));
		if (is(w[i], "attempts")) quern_number_member(&options, "max_attempts", number(value));
		if (is(w[i], "timeout")) quern_number_member(&options, "timeout_ms", number(value));
		if (is(w[i], "fair_key")) quern_text_member(&options, "fair_key", QUERN_VIEW(value));
		if (is(w[i], "fair_weight")) quern_number_member(&options, "fair_weight", number(value));
		if (is(w[i], "concurrency_key")) quern_text_member(&options, "concurrency_key", QUERN_VIEW(value));
		if (is(w[i], "max_concurrent")) quern_number_member(&options, "max_concurrent", number(value));
		if (is(w[i], "when") || is(w[i], "topic")) quern_text_member(&options, is(w[i], "when") ? "when" : "topic", QUERN_VIEW(value));
		if (is(w[i], "after")) {
			quern_member(&options, "after");
			quern_add(&options, "[", 1);
			quern_add_string(&options, QUERN_VIEW(value));
			quern_add(&options, "]", 1);
		}
		if (is(w[i], "attribute")) {
			quern_object_member(&options, "attributes");
			quern_text_member(&options, "kit", QUERN_VIEW(value));
			quern_end_object(&options);
		}
		if (is(w[i], "label") || is(w[i], "header") || is(w[i], "unique")) {
			quern_object_member(&options, is(w[i], "label") ? "labels" : is(w[i], "header") ? "headers" : "unique");
			quern_text_member(&options, is(w[i], "unique") ? "key" : "kit", QUERN_VIEW(value));
			quern_end_object(&options);
		}
	}
	quern_end_object(&options);
	if (w[3].size == 0) options.size = 0;
	int32_t answer = is(w[0], "publish") ? quern_publish(QUERN_VIEW(body), QUERN_VIEW(options))
		: quern_enqueue(QUERN_VIEW(queue), QUERN_VIEW(body), QUERN_VIEW(options));
	tell_slot(w[0], answer);
}

static void call_dependencies(const quern_view *w) {
	int32_t size = quern_slot(quern_task_text(QUERN_TASK_DEPENDENCIES), room, sizeof room);
	quern_view list = quern_view_of(room, size < 0 ? 0 : (uint32_t)size), id, end;
	begin(w[0], size);
	while (quern_next_dependency(&list, &id, &end)) {
		show(QUERN_VIEW(id));
		show(QUERN_VIEW(end));
	}
	say("\n");
}

static void call_result(const quern_view *w) {
	quern_view id = text(w[1]);
	tell_slot(w[0], quern_dependency_result(QUERN_VIEW(id)));
}

// ---- Databases ----

// The rest of the line from a word on.
static quern_view from(quern_view word) {
	return quern_view_of(word.data, (uint32_t)(current.data + current.size - word.data));
}

// Writes the answer of a database: the SQLSTATE and the constraint of an error, or rows with a value each.
static void tell_rows(quern_view verb, int32_t answer, int counts) {
	quern_rows rows;
	quern_view value;
	int32_t kind, size = quern_slot(answer, room, sizeof room);
	if (size >= 0 && quern_split_rows(room, (uint32_t)size, &rows) < 0) {
		put(QUERN_VIEW(verb));
		show(QUERN_VIEW(rows.state));
		if (quern_error_field(&rows, 'n', &value)) show(QUERN_VIEW(value));
	} else {
		begin(verb, size);
		if (size >= 0 && counts) show_number(rows.affected);
		while (size >= 0 && quern_next_value(&rows.values, &kind, &value)) {
			if (kind == QUERN_SQL_NULL) value = quern_view_of("!", 1);
			show(QUERN_VIEW(value));
		}
	}
	say("\n");
}

static char parameters[2 << 20];

static void call_sql(const quern_view *w) {
	quern_view database = text(w[1]);
	quern_builder values = quern_build(parameters, sizeof parameters);
	int end = 3 + (int)number(w[2]);
	for (int i = 3; i < end; i++) {
		quern_view value = text(w[i]);
		if (is(w[i], "!")) quern_add_null(&values);
		else quern_add_value(&values, QUERN_VIEW(value));
	}
	quern_view statement = from(w[end]);
	tell_rows(w[0], quern_sql(QUERN_VIEW(database), QUERN_VIEW(statement), QUERN_VIEW(values)), 1);
}

static void call_kinds(const quern_view *w) {
	quern_view database = text(w[1]), value;
	quern_rows rows;
	quern_builder values = quern_build(parameters, sizeof parameters);
	int32_t kind = 0, first = 1;
	int32_t size = quern_slot(quern_sql(QUERN_VIEW(database), QUERN_TEXT("SELECT * FROM kinds WHERE id = 'a'"), NULL, 0), room, sizeof room);
	if (size < 0 || quern_split_rows(room, (uint32_t)size, &rows) != 1) {
		tell_rows(w[0], size, 0);
		return;
	}
	for (; quern_next_value(&rows.values, &kind, &value); first = 0) {
		if (!first) quern_add_kind(&values, kind, QUERN_VIEW(value));
	}
	tell_rows(w[0], quern_sql(QUERN_VIEW(database),
		QUERN_TEXT("INSERT INTO kinds VALUES ('b', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"), QUERN_VIEW(values)), 0);
}

static void call_commit(const quern_view *w) {
	quern_view database = text(w[1]);
	tell_rows(w[0], quern_sql_commit(QUERN_VIEW(database), NULL, 0, NULL, 0), 0);
}

static void call_rollback(const quern_view *w) {
	quern_view database = text(w[1]);
	tell(w[0], quern_sql_rollback(QUERN_VIEW(database)));
}

static void call_step(const quern_view *w) {
	quern_view database = text(w[1]), value = text(w[3]), statement = from(w[4]);
	quern_rows rows;
	int32_t answer = quern_sql_step(QUERN_VIEW(database), QUERN_VIEW(w[2]));
	if (answer != QUERN_ENOTFOUND) {
		tell_slot(w[0], answer);
		return;
	}
	answer = quern_sql(QUERN_VIEW(database), QUERN_VIEW(statement), NULL, 0);
	int32_t size = quern_slot(answer, room, sizeof room);
	if (size < 0 || quern_split_rows(room, (uint32_t)size, &rows) < 0) {
		tell_rows(w[0], answer, 0);
		quern_sql_rollback(QUERN_VIEW(database));
		return;
	}
	answer = quern_sql_commit(QUERN_VIEW(database), QUERN_VIEW(w[2]), QUERN_VIEW(value));
	begin(w[0], answer);
	if (answer >= 0) show(QUERN_VIEW(value));
	say("\n");
}

// ---- The start, and raw calls ----

static struct {
	int32_t config, log, random, clock, get, secret, save, load, size, text;
} started;

__attribute__((constructor)) static void start(void) {
	int64_t time;
	char byte;
	started.text = quern_task_text(0);
	started.config = quern_config_get(QUERN_TEXT("size"));
	started.log = quern_log(QUERN_INFO, QUERN_TEXT("start"), NULL, 0);
	started.random = quern_random(&byte, 1);
	started.clock = quern_clock(QUERN_CLOCK_REAL, &time);
	started.get = quern_kv_get(QUERN_TEXT("kit"), QUERN_TEXT("start"));
	started.secret = quern_secret_get(QUERN_TEXT("api_key"));
	started.save = quern_checkpoint_save(QUERN_TEXT("start"));
	started.load = quern_checkpoint_load();
	started.size = quern_input_size();
}

static void call_start(const quern_view *w) {
	const struct {
		const char *name;
		int32_t answer;
	} answers[] = {
		{"config", started.config}, {"log", started.log}, {"random", started.random}, {"clock", started.clock}, {"get", started.get},
		{"secret", started.secret}, {"save", started.save}, {"load", started.load}, {"size", started.size}, {"text", started.text},
	};
	for (uint32_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
		if (is(w[1], answers[i].name)) tell(w[0], answers[i].answer);
	}
}

static char scratch[1 << 17]; // where & points

// An argument that is a double: hundredths, or nan.
static double fraction(quern_view word) { return is(word, "nan") ? __builtin_nan("") : (double)number(word) / 100; }

#define P(i) ((void *)(uintptr_t)(uint32_t)a[i])
#define I(i) ((int32_t)a[i])
#define U(i) ((uint32_t)a[i])

static int32_t raw(quern_view name, const quern_view *words, const int64_t *a) {
	if (is(name, "result_read")) return quern_result_read(U(0), P(1), U(2));
	if (is(name, "result_size")) return quern_result_size();
	if (is(name, "input_size")) return quern_input_size();
	if (is(name, "input_read")) return quern_input_read(U(0), P(1), U(2));
	if (is(name, "output_write")) return quern_output_write(P(0), U(1));
	if (is(name, "error_set")) return quern_error_set(P(0), U(1));
	if (is(name, "retry_after")) return quern_retry_after(a[0]);
	if (is(name, "task_text")) return quern_task_text(I(0));
	if (is(name, "task_number")) return quern_task_number(I(0), (int64_t *)P(1));
	if (is(name, "cancelled")) return quern_cancelled();
	if (is(name, "log")) return quern_log(I(0), P(1), U(2), P(3), U(4));
	if (is(name, "progress")) return quern_progress(fraction(words[0]), P(1), U(2));
	if (is(name, "checkpoint_save")) return quern_checkpoint_save(P(0), U(1));
	if (is(name, "checkpoint_load")) return quern_checkpoint_load();
	if (is(name, "kv_get")) return quern_kv_get(P(0), U(1), P(2), U(3));
	if (is(name, "kv_set")) return quern_kv_set(P(0), U(1), P(2), U(3), P(4), U(5), a[6]);
	if (is(name, "kv_delete")) return quern_kv_delete(P(0), U(1), P(2), U(3));
	if (is(name, "kv_increment")) return quern_kv_increment(P(0), U(1), P(2), U(3), a[4], (int64_t *)P(5));
	if (is(name, "kv_swap")) return quern_kv_swap(P(0), U(1), P(2), U(3), P(4), U(5), P(6), U(7), a[8]);
	if (is(name, "kv_list")) return quern_kv_list(P(0), U(1), P(2), U(3), P(4), U(5), I(6));
	if (is(name, "http")) return quern_http(P(0), U(1), P(2), U(3));
	if (is(name, "sql")) return quern_sql(P(0), U(1), P(2), U(3), P(4), U(5));
	if (is(name, "sql_commit")) return quern_sql_commit(P(0), U(1), P(2), U(3), P(4), U(5));
	if (is(name, "sql_rollback")) return quern_sql_rollback(P(0), U(1));
	if (is(name, "sql_step")) return quern_sql_step(P(0), U(1), P(2), U(3));
	if (is(name, "config_get")) return quern_config_get(P(0), U(1));
	if (is(name, "secret_get")) return quern_secret_get(P(0), U(1));
	if (is(name, "clock")) return quern_clock(I(0), (int64_t *)P(1));
	if (is(name, "sleep")) return quern_sleep(a[0]);
	if (is(name, "random")) return quern_random(P(0), U(1));
	if (is(name, "enqueue")) return quern_enqueue(P(0), U(1), P(2), U(3), P(4), U(5));
	if (is(name, "dependency_result")) return quern_dependency_result(P(0), U(1));
	return QUERN_EINVAL;
}

// raw FUNCTION ARGUMENT…: a number; @WORD for the two arguments of a text; & for a pointer to memory that may be written.
static void call_raw(const quern_view *w) {
	int64_t arguments[WORDS] = {0};
	int count = 0;
	for (int i = 2; w[i].size > 0; i++) {
		quern_view word = w[i];
		if (word.data[0] == '@') {
			quern_view t = text(quern_view_of(word.data + 1, word.size - 1));
			arguments[count++] = (int64_t)(uintptr_t)t.data;
			arguments[count++] = t.size;
		} else {
			arguments[count++] = is(word, "&") ? (int64_t)(uintptr_t)scratch : number(word);
		}
	}
	int32_t answer = raw(w[1], w + 2, arguments);
	begin(w[1], answer);
	if (answer >= 0) show_number(answer);
	say("\n");
}

// peek N: the bytes that & points to.
static void call_peek(const quern_view *w) {
	begin(w[0], 0);
	show(scratch, (uint32_t)number(w[1]));
	say("\n");
}

// ---- The handler ----

static const struct {
	const char *verb;
	void (*call)(const quern_view *words);
} calls[] = {
	{"write", call_write}, {"end", call_end}, {"retry", call_retry}, {"trap", call_trap}, {"size", call_size}, {"sum", call_sum},
	{"text", call_text}, {"header", call_header}, {"number", call_number}, {"deadline", call_deadline}, {"cancelled", call_cancelled},
	{"await", call_await}, {"log", call_log}, {"progress", call_progress}, {"save", call_save}, {"load", call_load},
	{"get", call_get}, {"set", call_set},
	{"delete", call_delete}, {"increment", call_increment}, {"swap", call_swap}, {"list", call_list}, {"http", call_http},
	{"config", call_config}, {"secret", call_secret}, {"clock", call_clock}, {"sleep", call_sleep}, {"random", call_random},
	{"remember", call_remember}, {"enqueue", call_enqueue}, {"publish", call_enqueue}, {"dependencies", call_dependencies},
	{"result", call_result}, {"sql", call_sql}, {"kinds", call_kinds}, {"commit", call_commit}, {"rollback", call_rollback},
	{"step", call_step}, {"start", call_start}, {"raw", call_raw}, {"peek", call_peek},
};

static void run(const quern_view *words) {
	for (uint32_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		if (is(words[0], calls[i].verb)) {
			calls[i].call(words);
			return;
		}
	}
	put(QUERN_VIEW(words[0]));
	say(" is no call of this guest\n");
}

// Runs one line: words with one space between them. "on 2 VERB …" is for the second attempt alone, "once VERB …" for a run
// that finds no checkpoint, and leaves one.
static void line(quern_view rest) {
	quern_view words[WORDS + 2] = {{NULL, 0}};
	used = 0;
	current = rest;
	for (int count = 0; rest.size > 0 && count < WORDS; count++) {
		uint32_t size = 0;
		while (size < rest.size && rest.data[size] != ' ') size++;
		words[count] = quern_view_of(rest.data, size);
		size += size < rest.size;
		rest = quern_view_of(rest.data + size, rest.size - size);
	}
	if (words[0].size == 0 || words[0].data[0] == '#') return;
	if (is(words[0], "on")) {
		if (number(words[1]) == quern_number(QUERN_TASK_ATTEMPT)) run(words + 2);
	} else if (is(words[0], "once")) {
		if (quern_checkpoint_load() == QUERN_ENOTFOUND && quern_checkpoint_save(QUERN_TEXT("once")) == 0) run(words + 1);
	} else {
		run(words);
	}
}

QUERN_HANDLER int32_t handle(void) {
	int32_t size = quern_input(input, sizeof input);
	if (size < 0) return quern_fail(QUERN_FATAL, "the input is too long for the kit");
	for (int32_t at = 0, end; at < size && !ended; at = end + 1) {
		end = at;
		while (end < size && input[end] != '\n') end++;
		line(quern_view_of(input + at, (uint32_t)(end - at)));
	}
	return ending;
}
