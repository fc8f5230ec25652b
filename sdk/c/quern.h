// quern_v1, the functions of Quern, for handlers in C and C++. sdk/ABI.md is the specification.
//
//	#include "quern.h"
//
//	QUERN_HANDLER int32_t handle(void) {
//		char name[100];
//		int32_t size = quern_input(name, sizeof name);
//		if (size < 0) return quern_fail(QUERN_FATAL, "the input is longer than a name");
//		quern_output_write(QUERN_TEXT("Hello, "));
//		return quern_output_write(name, (uint32_t)size);
//	}
//
// The first part declares the functions of quern_v1, each with the prefix quern_: a module imports only those that it
// calls. The second part has helpers around them, without allocation and without the C library. The header keeps no
// state: all of it is the caller's or the host's.
//
// Bytes are passed as two arguments, a pointer and a length. QUERN_TEXT("literal") and QUERN_VIEW(view) stand for both:
//
//	quern_kv_set(QUERN_TEXT("thumbs"), key, quern_length(key), picture, size, 0);
//
// A pointer to no bytes may be anything, also NULL. Texts are UTF-8, times milliseconds.
#ifndef QUERN_H
#define QUERN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Marks the function that the host calls for every task. It takes no arguments and returns an int32_t, one of the
// statuses below.
#define QUERN_HANDLER __attribute__((export_name("quern_handle")))

// Before a declaration: imports a function of quern_v1, also one that this header does not know yet.
#define QUERN_IMPORT(name) __attribute__((import_module("quern_v1"), import_name(#name)))

// What a handler returns. Any other number counts as QUERN_FAILED.
enum {
	QUERN_COMPLETE = 0, // the task's result is what was written
	QUERN_FAILED = 1,   // failed: tried again if the task's retry policy says so
	QUERN_FATAL = 65,   // failed for good: the same input would fail again
	QUERN_RETRY = 75    // try again later: something is unavailable
};

// What a function returns: from 0 up success, with a meaning that depends on the function. Every function with a pointer
// may return QUERN_EFAULT, and every function that needs a task QUERN_ESTATE without one.
enum {
	QUERN_OK = 0,
	QUERN_EINVAL = -1,     // invalid argument; why: QUERN_TASK_REFUSAL
	QUERN_EFAULT = -2,     // range outside memory
	QUERN_EDENIED = -3,    // not granted; what to add to the manifest: QUERN_TASK_REFUSAL
	QUERN_ENOTFOUND = -4,  // no such name
	QUERN_ETOOBIG = -5,    // larger than a limit or a buffer
	QUERN_EQUOTA = -6,     // quota exhausted
	QUERN_ECONFLICT = -7,  // not the value that the handler expects
	QUERN_ECANCELED = -8,  // another host has the task: further work is in vain
	QUERN_EAGAIN = -9,     // the service is unavailable
	QUERN_ESTATE = -10,    // no task
	QUERN_ELIMIT = -11     // too many, or too deep; see the task's log
};

// Levels of quern_log.
enum { QUERN_TRACE, QUERN_DEBUG, QUERN_INFO, QUERN_WARNING, QUERN_ERROR };

// Fields of quern_task_text. Missing ones are empty.
enum {
	QUERN_TASK_ID,
	QUERN_TASK_QUEUE,
	QUERN_TASK_TENANT,
	QUERN_TASK_PLUGIN,
	QUERN_TASK_PREVIOUS_ERROR, // error of the attempt before
	QUERN_TASK_PARENT,         // ID of the task that enqueued this one
	QUERN_TASK_KEY,
	QUERN_TASK_TRACEPARENT,    // of the W3C's Trace Context
	QUERN_TASK_HEADERS,        // lines "name: value", traceparent among them: see quern_header
	QUERN_TASK_DEPENDENCIES,   // lines "ID END", what the task waited for: see quern_next_dependency
	QUERN_TASK_REFUSAL         // why the host last refused a call (EINVAL, EDENIED, EQUOTA, EAGAIN, ELIMIT), or a dependency has no result (ENOTFOUND)
};

// Fields of quern_task_number.
enum {
	QUERN_TASK_ATTEMPT,      // from 1
	QUERN_TASK_MAX_ATTEMPTS, // 0: any number
	QUERN_TASK_DEADLINE,     // Unix time in milliseconds; 0: none
	QUERN_TASK_FUEL,         // fuel left; INT64_MAX without a limit
	QUERN_TASK_RESCHEDULES   // how often it has returned QUERN_RETRY, which counts no attempt
};

// Clocks of quern_clock.
enum {
	QUERN_CLOCK_REAL,     // Unix time
	QUERN_CLOCK_MONOTONIC // never goes back; starts anywhere
};

// Limits of arguments, in bytes. The host cuts longer errors, messages and reports of progress, when it has replaced secrets in
// them: leave that to it.
enum {
	QUERN_MAX_ERROR = 4 << 10,
	QUERN_MAX_MESSAGE = 64 << 10, // of a line of the log
	QUERN_MAX_FIELDS = 3 << 10,   // behind it
	QUERN_MAX_PROGRESS = 1 << 10,
	QUERN_MAX_CHECKPOINT = 1 << 20,
	QUERN_MAX_KEY = 256, // and of a bucket's name
	QUERN_MAX_VALUE = 512 << 10,
	QUERN_MAX_HEAD = 128 << 10, // of an HTTP request
	QUERN_MAX_BODY = 16 << 20,
	QUERN_MAX_STATEMENT = 1 << 20,
	QUERN_MAX_OPTIONS = 64 << 10, // of quern_enqueue
	QUERN_MAX_RANDOM = 64 << 10,
	QUERN_MAX_HEADERS = 9 << 10 // the text QUERN_TASK_HEADERS
};

// The most bytes of a key in a list of quern_kv_list: N keys need at most N times as many.
enum { QUERN_LISTED_KEY = 4 + QUERN_MAX_KEY };

// ---- The functions of quern_v1 ----
//
// "Slot:" means that a function puts its answer into the host's slot and returns its length. Read it by quern_slot,
// quern_result_read and quern_result_size. The slot keeps it until another function fills it; a function that fails does
// not change it.

// Copies from the slot, from an offset on, and returns the number of bytes: fewer than capacity at the end, then 0.
QUERN_IMPORT(result_read) int32_t quern_result_read(uint32_t offset, void *to, uint32_t capacity);

// The length of the slot's contents.
QUERN_IMPORT(result_size) int32_t quern_result_size(void);

// The length of the task's input.
QUERN_IMPORT(input_size) int32_t quern_input_size(void);

// Copies from the input, from an offset on, and returns the number of bytes: fewer than capacity at the end, then 0.
// Piece by piece:
//
//	for (int32_t at = 0, n; (n = quern_input_read((uint32_t)at, piece, sizeof piece)) > 0; at += n) use(piece, n);
QUERN_IMPORT(input_read) int32_t quern_input_read(uint32_t offset, void *to, uint32_t capacity);

// Appends to the task's result. QUERN_ETOOBIG if it would exceed limits.output of the manifest: nothing is appended.
QUERN_IMPORT(output_write) int32_t quern_output_write(const void *data, uint32_t size);

// Sets the task's error, cut to QUERN_MAX_ERROR, for a task that fails. The last call counts.
QUERN_IMPORT(error_set) int32_t quern_error_set(const void *text, uint32_t size);

// Sets the delay of the next attempt, at most a year, if there is one: after QUERN_RETRY, which counts no attempt, and after a
// failure, which counts one. The last call counts. Below 0, after QUERN_RETRY, it is the delay of -milliseconds of all waiting
// tasks of the queue with the key of this one, such as those of a customer whom a service answers with 429.
QUERN_IMPORT(retry_after) int32_t quern_retry_after(int64_t milliseconds);

// Slot: a text about the task, by field: QUERN_TASK_ID and so on. QUERN_EINVAL for an unknown field; for
// QUERN_TASK_DEPENDENCIES also QUERN_EAGAIN.
QUERN_IMPORT(task_text) int32_t quern_task_text(int32_t field);

// Writes a number about the task, by field: QUERN_TASK_ATTEMPT and so on. QUERN_EINVAL for an unknown field.
QUERN_IMPORT(task_number) int32_t quern_task_number(int32_t field, int64_t *to);

// 1 if the host is about to end, else 0: a task that ends now need not be run again.
QUERN_IMPORT(cancelled) int32_t quern_cancelled(void);

// Writes a line to the task's log: a level, a text, cut to QUERN_MAX_MESSAGE, and fields, a JSON object of at most
// QUERN_MAX_FIELDS, or no bytes. QUERN_ETOOBIG; QUERN_EINVAL for an unknown level or fields that are not an object.
QUERN_IMPORT(log) int32_t quern_log(int32_t level, const void *text, uint32_t size, const void *fields, uint32_t fields_size);

// Reports the task's progress, from 0 to 1, and a message, cut to QUERN_MAX_PROGRESS. The last report is shown.
// QUERN_EINVAL if the fraction is NaN.
QUERN_IMPORT(progress) int32_t quern_progress(double fraction, const void *message, uint32_t size);

// Saves at most QUERN_MAX_CHECKPOINT for the task's next run, and replaces the last checkpoint. After 0 it survives the
// host. QUERN_ETOOBIG, QUERN_ECANCELED (stop), QUERN_EAGAIN.
QUERN_IMPORT(checkpoint_save) int32_t quern_checkpoint_save(const void *data, uint32_t size);

// Slot: the last saved checkpoint, of this run or an earlier one. QUERN_ENOTFOUND if there is none.
QUERN_IMPORT(checkpoint_load) int32_t quern_checkpoint_load(void);

// The store. All of it needs capabilities.kv in the manifest. Buckets and keys are 1 to QUERN_MAX_KEY bytes of UTF-8 without
// control characters, else QUERN_EINVAL. QUERN_EDENIED for a bucket that is not granted, or granted for reading only;
// QUERN_EAGAIN without Redis.

// Slot: the value of a key. QUERN_ENOTFOUND.
QUERN_IMPORT(kv_get) int32_t quern_kv_get(const void *bucket, uint32_t bucket_size, const void *key, uint32_t key_size);

// Sets a value of at most QUERN_MAX_VALUE, for ttl milliseconds, or forever with 0. QUERN_ETOOBIG; QUERN_EQUOTA if the
// bucket would exceed its quota; QUERN_EINVAL if ttl is below 0.
QUERN_IMPORT(kv_set)
int32_t quern_kv_set(const void *bucket, uint32_t bucket_size, const void *key, uint32_t key_size, const void *value,
	uint32_t value_size, int64_t ttl);

// Deletes a value: 1 if there was one, else 0.
QUERN_IMPORT(kv_delete) int32_t quern_kv_delete(const void *bucket, uint32_t bucket_size, const void *key, uint32_t key_size);

// Adds to a decimal number, 0 if there is none, and writes the sum. QUERN_ECONFLICT if the value is not a number,
// QUERN_ELIMIT if the sum exceeds 64 bits, QUERN_EQUOTA.
QUERN_IMPORT(kv_increment)
int32_t quern_kv_increment(
	const void *bucket, uint32_t bucket_size, const void *key, uint32_t key_size, int64_t delta, int64_t *sum);

// The size of an old value for quern_kv_swap that must not exist.
#define QUERN_ABSENT UINT32_MAX

// Sets a value like quern_kv_set if the present one equals old, or if there is none and old_size is QUERN_ABSENT. Else
// QUERN_ECONFLICT, with the present value in the slot, or QUERN_ENOTFOUND without a present value.
QUERN_IMPORT(kv_swap)
int32_t quern_kv_swap(const void *bucket, uint32_t bucket_size, const void *key, uint32_t key_size, const void *old,
	uint32_t old_size, const void *value, uint32_t value_size, int64_t ttl);

// Slot: at most limit keys that begin with prefix and come after the key after, in byte order, each preceded by its length
// in 4 bytes (see quern_next_key). The next page begins after the last key. QUERN_EINVAL if limit is not 1 to 1000.
QUERN_IMPORT(kv_list)
int32_t quern_kv_list(const void *bucket, uint32_t bucket_size, const void *prefix, uint32_t prefix_size, const void *after,
	uint32_t after_size, int32_t limit);

// Slot: the answer to an HTTP request (see quern_split_answer). The head is a JSON object of at most QUERN_MAX_HEAD; only
// url is required: {"method": "POST", "url": "https://…", "headers": {"Accept": "text/plain"}, "timeout_ms": 5000}. Both
// bodies have at most QUERN_MAX_BODY. Redirects are answers like any other status. Needs capabilities.http in the
// manifest. QUERN_EDENIED, QUERN_ETOOBIG, QUERN_EINVAL (the head), QUERN_EAGAIN (no answer).
QUERN_IMPORT(http) int32_t quern_http(const void *head, uint32_t head_size, const void *body, uint32_t body_size);

// Statements on a PostgreSQL database of the manifest's capabilities.sql. The first one begins a transaction.
//
// Slot: the answer of the database (see quern_split_rows), also if that is an error. Parameters are values, one after the
// other, for $1, $2 and so on (see quern_add_null, quern_add_value, quern_add_bytes). QUERN_EINVAL, QUERN_EDENIED (the
// database, or the statement's first word), QUERN_ETOOBIG (a statement over QUERN_MAX_STATEMENT, parameters over
// QUERN_MAX_BODY), QUERN_ELIMIT (over rows, bytes, timeout or transaction of the manifest), QUERN_EAGAIN (the database does
// not serve). After the last two the transaction is lost.
QUERN_IMPORT(sql)
int32_t quern_sql(const void *database, uint32_t database_size, const void *statement, uint32_t statement_size,
	const void *parameters, uint32_t parameters_size);

// Slot: the answer to a commit, one without rows, or an error of the database. Needs `commit: call` in the manifest. With a
// step, of 1 to 128 bytes from 0x21 to 0x7e, the transaction also stores the step's value, of at most 1 MiB.
// QUERN_ECONFLICT if another run of the task has stored it; QUERN_EAGAIN: it is not known whether it is committed.
QUERN_IMPORT(sql_commit)
int32_t quern_sql_commit(const void *database, uint32_t database_size, const void *step, uint32_t step_size,
	const void *value, uint32_t value_size);

// Undoes the transaction, if there is one.
QUERN_IMPORT(sql_rollback) int32_t quern_sql_rollback(const void *database, uint32_t database_size);

// Slot: the value that a run of this task stored for a step. QUERN_ENOTFOUND: do the step's statements now, and commit them
// with the step. Needs `commit: call`.
QUERN_IMPORT(sql_step)
int32_t quern_sql_step(const void *database, uint32_t database_size, const void *step, uint32_t step_size);

// Slot: a value of the manifest's section config. QUERN_ENOTFOUND. Also works at the start.
QUERN_IMPORT(config_get) int32_t quern_config_get(const void *name, uint32_t size);

// Slot: a secret. Needs capabilities.secrets in the manifest. QUERN_EDENIED if that does not list it, QUERN_ENOTFOUND if
// the tenant has none of that name.
QUERN_IMPORT(secret_get) int32_t quern_secret_get(const void *name, uint32_t size);

// Writes a time in nanoseconds, of QUERN_CLOCK_REAL or QUERN_CLOCK_MONOTONIC. QUERN_EINVAL for any other clock.
QUERN_IMPORT(clock) int32_t quern_clock(int32_t id, int64_t *to);

// Sleeps; other tasks run meanwhile. QUERN_EINVAL below 0.
QUERN_IMPORT(sleep) int32_t quern_sleep(int64_t milliseconds);

// Fills at most QUERN_MAX_RANDOM with random bytes, fit for keys. QUERN_ETOOBIG.
QUERN_IMPORT(random) int32_t quern_random(void *to, uint32_t size);

// Slot: the ID of a new child task. Options are a JSON object of at most QUERN_MAX_OPTIONS, or no bytes:
// {"id": "text", "key": "text", "labels": {"name": "value"}, "headers": {"name": "value"}, "priority": 50, "delay_ms": 5000, "at_ms": 1700000000000,
// "max_attempts": 3, "timeout_ms": 60000, "after": ["ID"], "when": "complete", "fair_key": "text", "fair_weight": 1,
// "concurrency_key": "text", "max_concurrent": 1, "unique": {"key": "text", "for_ms": 60000}}, each of them optional. The task is created when this one completes, or at once with `after: call` in the manifest. Needs capabilities.enqueue.
// QUERN_EINVAL (the queue's name, an option), QUERN_EDENIED, QUERN_ETOOBIG (output and new tasks together are over limits.output),
// QUERN_ELIMIT (more than 256, or too long a chain of parents); with `after: call` also QUERN_EQUOTA (the queue is full) and
// QUERN_EAGAIN (the task may exist or not: repeating the id creates no second one). See quern_publish for an empty queue.
QUERN_IMPORT(enqueue)
int32_t quern_enqueue(const void *queue, uint32_t queue_size, const void *body, uint32_t body_size, const void *options,
	uint32_t options_size);

// Slot: the result of a task that this one waited for, by its ID. QUERN_EINVAL if it did not, QUERN_ENOTFOUND if that task is not
// complete or is deleted, QUERN_ETOOBIG if the result is longer than QUERN_MAX_BODY, QUERN_EAGAIN.
QUERN_IMPORT(dependency_result) int32_t quern_dependency_result(const void *id, uint32_t size);

// ---- Texts ----

// The two arguments for a string literal.
#define QUERN_TEXT(literal) "" literal, (uint32_t)(sizeof(literal) - 1)

// The two arguments for a quern_view.
#define QUERN_VIEW(view) (view).data, (view).size

// Bytes in memory of the caller, without a final zero.
typedef struct quern_view {
	const char *data;
	uint32_t size;
} quern_view;

// The length of a zero-terminated text.
static inline uint32_t quern_length(const char *text) {
	uint32_t size = 0;
	while (text[size]) size++;
	return size;
}

// Bytes as a view.
static inline quern_view quern_view_of(const void *data, uint32_t size) {
	quern_view view;
	view.data = (const char *)data;
	view.size = size;
	return view;
}

// 1 if two texts are the same bytes, else 0.
static inline int quern_equal(const void *a, uint32_t a_size, const void *b, uint32_t b_size) {
	if (a_size != b_size) return 0;
	for (uint32_t i = 0; i < a_size; i++) {
		if (((const char *)a)[i] != ((const char *)b)[i]) return 0;
	}
	return 1;
}

// ---- The task ----

// Copies all of the input and returns its length. QUERN_ETOOBIG, and no copy, if it is longer than capacity.
static inline int32_t quern_input(void *to, uint32_t capacity) {
	int32_t size = quern_input_size();
	if (size < 0) return size;
	if ((uint32_t)size > capacity) return QUERN_ETOOBIG;
	return quern_input_read(0, to, capacity);
}

// quern_output_write for a zero-terminated text.
static inline int32_t quern_write(const char *text) { return quern_output_write(text, quern_length(text)); }

// Ends a task: return quern_fail(QUERN_FATAL, "the file is no picture").
static inline int32_t quern_fail(int32_t status, const char *why) {
	quern_error_set(why, quern_length(why));
	return status;
}

// quern_task_number, 0 if the host does not know the field.
static inline int64_t quern_number(int32_t field) {
	int64_t number = 0;
	return quern_task_number(field, &number) < 0 ? 0 : number;
}

// Finds a header, by its name in lower case, in the text of QUERN_TASK_HEADERS, and returns 1; 0 if the task has none of that
// name. The value points into the text:
//
//	int32_t size = quern_slot(quern_task_text(QUERN_TASK_HEADERS), room, sizeof room);
//	if (size >= 0 && quern_header(quern_view_of(room, (uint32_t)size), QUERN_TEXT("x-request-id"), &id)) use(id);
static inline int quern_header(quern_view headers, const void *name, uint32_t name_size, quern_view *value) {
	for (uint32_t at = 0, end; at < headers.size; at = end + 1) {
		for (end = at; end < headers.size && headers.data[end] != '\n'; end++) {
		}
		if (end - at < name_size + 2 || headers.data[at + name_size] != ':') continue;
		if (!quern_equal(headers.data + at, name_size, name, name_size)) continue;
		*value = quern_view_of(headers.data + at + name_size + 2, end - at - name_size - 2);
		return 1;
	}
	return 0;
}

// Takes the next line of the text QUERN_TASK_DEPENDENCIES, and returns 1; 0 if none is left. The end is complete, failed, gone, open
// or waiting. Both point into the text:
//
//	while (quern_next_dependency(&list, &id, &end)) size = quern_slot(quern_dependency_result(QUERN_VIEW(id)), room, sizeof room);
static inline int quern_next_dependency(quern_view *list, quern_view *id, quern_view *end) {
	uint32_t space = 0, line;
	while (space < list->size && list->data[space] != ' ') space++;
	for (line = space; line < list->size && list->data[line] != '\n'; line++) {
	}
	if (line == list->size) return 0;
	*id = quern_view_of(list->data, space);
	*end = quern_view_of(list->data + space + 1, line - space - 1);
	*list = quern_view_of(list->data + line + 1, list->size - line - 1);
	return 1;
}

// Publishes a body to a topic: each subscription that matches gets a task. The options are {"topic": "orders", "id": "text",
// "attributes": {"type": "order.made"}}, of which only the topic is required. Slot: the ID of the publication. Needs
// capabilities.publish. The errors are those of quern_enqueue.
static inline int32_t quern_publish(const void *body, uint32_t body_size, const void *options, uint32_t options_size) {
	return quern_enqueue(NULL, 0, body, body_size, options, options_size);
}

// quern_log for a zero-terminated text without fields.
static inline int32_t quern_say(int32_t level, const char *text) { return quern_log(level, text, quern_length(text), NULL, 0); }

// Copies a function's answer from the slot and returns its length, or that function's error. An answer longer than capacity
// is QUERN_ETOOBIG: its beginning is copied, and quern_result_size returns its length.
//
//	int32_t size = quern_slot(quern_config_get(QUERN_TEXT("size")), text, sizeof text);
static inline int32_t quern_slot(int32_t answer, void *to, uint32_t capacity) {
	if (answer < 0) return answer;
	int32_t copied = quern_result_read(0, to, capacity);
	return copied < 0 || copied == answer ? copied : (int32_t)QUERN_ETOOBIG;
}

// Takes the next key from a list of quern_kv_list, and returns 1; 0 if none is left. The key points into the list's bytes:
//
//	int32_t size = quern_slot(quern_kv_list(QUERN_TEXT("thumbs"), NULL, 0, NULL, 0, 50), room, sizeof room);
//	if (size < 0) return size;
//	quern_view list = quern_view_of(room, (uint32_t)size), key;
//	while (quern_next_key(&list, &key)) quern_kv_delete(QUERN_TEXT("thumbs"), QUERN_VIEW(key));
static inline int quern_next_key(quern_view *list, quern_view *key) {
	if (list->size < 4) return 0;
	const unsigned char *p = (const unsigned char *)list->data;
	uint32_t size = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	if (size > list->size - 4) return 0;
	*key = quern_view_of(p + 4, size);
	*list = quern_view_of(p + 4 + size, list->size - 4 - size);
	return 1;
}

// Splits an answer of quern_http into its head, a JSON object, and its body, and returns the status, such as 200;
// QUERN_EINVAL for anything else. Both point into the answer's bytes.
static inline int32_t quern_split_answer(const void *answer, uint32_t size, quern_view *head, quern_view *body) {
	quern_view rest = quern_view_of(answer, size);
	if (!quern_next_key(&rest, head)) return QUERN_EINVAL;
	*body = rest;
	// Within a JSON string these quotes would be escaped, and no header's value is a number.
	static const char name[] = "\"status\":";
	for (uint32_t at = 0; at + sizeof name <= head->size; at++) {
		const char *p = head->data + at + sizeof name - 1, *end = head->data + head->size;
		if (!quern_equal(head->data + at, sizeof name - 1, name, sizeof name - 1)) continue;
		while (p < end && *p == ' ') p++;
		int32_t status = 0;
		for (; p < end && *p >= '0' && *p <= '9' && status < 1000; p++) status = status * 10 + (*p - '0');
		if (status > 0) return status;
	}
	return QUERN_EINVAL;
}

// ---- Building texts and JSON ----

// A text that grows in memory of the caller. What does not fit is dropped, and quern_built reports it.
typedef struct quern_builder {
	char *data;
	uint32_t size, capacity;
	int cut; // 1 if anything did not fit
} quern_builder;

// An empty text with room for capacity bytes.
static inline quern_builder quern_build(void *room, uint32_t capacity) {
	quern_builder b;
	b.data = (char *)room;
	b.size = 0;
	b.capacity = capacity;
	b.cut = 0;
	return b;
}

// The length of the text; QUERN_ETOOBIG if it did not fit.
static inline int32_t quern_built(const quern_builder *b) { return b->cut ? (int32_t)QUERN_ETOOBIG : (int32_t)b->size; }

// Appends bytes.
static inline void quern_add(quern_builder *b, const void *data, uint32_t size) {
	for (uint32_t i = 0; i < size; i++) {
		if (b->cut || b->size == b->capacity) {
			b->cut = 1;
			return;
		}
		b->data[b->size++] = ((const char *)data)[i];
	}
}

// Appends a decimal number.
static inline void quern_add_number(quern_builder *b, int64_t number) {
	char digits[20]; // of INT64_MIN
	uint32_t at = sizeof digits;
	uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
	do {
		digits[--at] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (number < 0) digits[--at] = '-';
	quern_add(b, digits + at, sizeof digits - at);
}

// Appends bytes in hexadecimal, two digits each.
static inline void quern_add_hex(quern_builder *b, const void *data, uint32_t size) {
	for (uint32_t i = 0; i < size; i++) {
		unsigned char byte = ((const unsigned char *)data)[i];
		quern_add(b, &"0123456789abcdef"[byte >> 4], 1);
		quern_add(b, &"0123456789abcdef"[byte & 15], 1);
	}
}

// The length of the UTF-8 character at p, which has at least one byte; 0 if it is invalid.
static inline uint32_t quern_character(const unsigned char *p, uint32_t size) {
	if (p[0] < 0x80) return 1;
	uint32_t length = p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
	if (length == 0 || length > size) return 0;
	for (uint32_t i = 1; i < length; i++) {
		if ((p[i] & 0xc0) != 0x80) return 0;
	}
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f)) return 0; // too long a form; half a surrogate pair
	if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) return 0; // too long a form; over U+10FFFF
	return length;
}

// Appends a text as a JSON string, with its quotes. Each byte that is not UTF-8 becomes U+FFFD.
static inline void quern_add_string(quern_builder *b, const void *text, uint32_t size) {
	const unsigned char *p = (const unsigned char *)text;
	quern_add(b, "\"", 1);
	for (uint32_t at = 0, length; at < size; at += length) {
		length = quern_character(p + at, size - at);
		if (length == 0) {
			length = 1;
			quern_add(b, "\xef\xbf\xbd", 3);
		} else if (p[at] < ' ') {
			quern_add(b, "\\u00", 4);
			quern_add_hex(b, p + at, 1);
		} else {
			if (p[at] == '"' || p[at] == '\\') quern_add(b, "\\", 1);
			quern_add(b, p + at, length);
		}
	}
	quern_add(b, "\"", 1);
}

// ---- SQL ----

// Values as parameters of quern_sql:
//
//	char room[200];
//	quern_builder values = quern_build(room, sizeof room);
//	quern_add_value(&values, name, quern_length(name));
//	quern_add_null(&values);
//	if (quern_built(&values) < 0) return quern_fail(QUERN_FATAL, "the parameters are too long");
//	int32_t size = quern_slot(quern_sql(QUERN_TEXT("shop"), QUERN_TEXT("INSERT INTO t VALUES ($1, $2)"), QUERN_VIEW(values)),
//		answer, sizeof answer);

// Kinds of values.
enum { QUERN_SQL_NULL, QUERN_SQL_TEXT, QUERN_SQL_BYTES };

// Appends a value of any kind.
static inline void quern_add_kind(quern_builder *b, int32_t kind, const void *data, uint32_t size) {
	char head[5];
	head[0] = (char)kind;
	for (uint32_t i = 0; i < 4; i++) head[1 + i] = (char)(unsigned char)(size >> 8 * i);
	quern_add(b, head, sizeof head);
	quern_add(b, data, size);
}

// Appends NULL.
static inline void quern_add_null(quern_builder *b) { quern_add_kind(b, QUERN_SQL_NULL, NULL, 0); }

// Appends a value of any type in PostgreSQL's text format.
static inline void quern_add_value(quern_builder *b, const void *text, uint32_t size) {
	quern_add_kind(b, QUERN_SQL_TEXT, text, size);
}

// Appends the bytes of a bytea.
static inline void quern_add_bytes(quern_builder *b, const void *data, uint32_t size) {
	quern_add_kind(b, QUERN_SQL_BYTES, data, size);
}

// An answer of quern_sql or quern_sql_commit.
typedef struct quern_rows {
	int32_t rows;       // -1 for an error of the database
	int64_t affected;   // rows inserted, changed, deleted, selected or fetched
	uint32_t columns;
	quern_view names;   // see quern_next_column
	quern_view values;  // see quern_next_value; for an error its fields
	quern_view state;   // of an error: its SQLSTATE
	quern_view message; // of an error
} quern_rows;

// Takes a number of 4 bytes.
static inline uint32_t quern_next_number(quern_view *from) {
	uint32_t number = 0;
	if (from->size < 4) {
		from->size = 0;
		return 0;
	}
	for (uint32_t i = 0; i < 4; i++) number |= (uint32_t)(unsigned char)from->data[i] << 8 * i;
	*from = quern_view_of(from->data + 4, from->size - 4);
	return number;
}

// Takes the next column from the names, and returns 1; 0 if none is left. The OID is that of its type in PostgreSQL.
static inline int quern_next_column(quern_view *names, uint32_t *oid, quern_view *name) {
	if (names->size < 8) return 0;
	*oid = quern_next_number(names);
	return quern_next_key(names, name);
}

// Takes the next value from the values, row by row, and returns 1; 0 if none is left. The kind is QUERN_SQL_TEXT,
// QUERN_SQL_BYTES for a bytea, or QUERN_SQL_NULL.
static inline int quern_next_value(quern_view *values, int32_t *kind, quern_view *value) {
	if (values->size < 5) return 0;
	*kind = values->data[0];
	*values = quern_view_of(values->data + 1, values->size - 1);
	return quern_next_key(values, value);
}

// Finds a field of an error by its letter, such as 'n' for the constraint, and returns 1; 0 if the error has none.
static inline int quern_error_field(const quern_rows *error, char code, quern_view *text) {
	quern_view fields = error->values;
	int32_t letter;
	while (error->rows < 0 && quern_next_value(&fields, &letter, text)) {
		if (letter == code) return 1;
	}
	return 0;
}

// Splits an answer into its parts, which point into its bytes. Returns the number of rows, or -1 for an error of the
// database.
static inline int32_t quern_split_rows(const void *answer, uint32_t size, quern_rows *to) {
	quern_view rest = quern_view_of(answer, size), name;
	uint32_t oid;
	to->rows = (int32_t)quern_next_number(&rest);
	to->affected = 0;
	to->columns = 0;
	to->names = to->values = to->state = to->message = quern_view_of(answer, 0);
	if (to->rows < 0) {
		(void)quern_next_number(&rest);
		to->values = rest;
		(void)quern_error_field(to, 'C', &to->state);
		(void)quern_error_field(to, 'M', &to->message);
		return to->rows;
	}
	to->affected = quern_next_number(&rest);
	to->affected |= (int64_t)quern_next_number(&rest) << 32;
	to->columns = quern_next_number(&rest);
	to->names = rest;
	for (uint32_t i = 0; i < to->columns; i++) {
		if (!quern_next_column(&rest, &oid, &name)) break;
	}
	to->names.size -= rest.size;
	to->values = rest;
	return to->rows;
}

// ---- JSON ----

// JSON objects, for the fields of quern_log, the head of quern_http and the options of quern_enqueue:
//
//	char room[200];
//	quern_builder fields = quern_object(room, sizeof room);
//	quern_text_member(&fields, "file", name, quern_length(name));
//	quern_number_member(&fields, "bytes", size);
//	quern_end_object(&fields);
//	quern_log(QUERN_INFO, QUERN_TEXT("resized"), QUERN_VIEW(fields)); // resized {"file":"a.jpg","bytes":2048}
//
// An object that did not fit has no end, so functions refuse it as QUERN_EINVAL.

// Begins an object in memory of the caller. It traps with a capacity of 0, because no bytes would mean no fields or options
// instead of an object that did not fit.
static inline quern_builder quern_object(void *room, uint32_t capacity) {
	if (capacity == 0) __builtin_trap();
	quern_builder b = quern_build(room, capacity);
	quern_add(&b, "{", 1);
	return b;
}

// Appends a member's zero-terminated name, before a value that is added by the functions above.
static inline void quern_member(quern_builder *b, const char *name) {
	if (b->size > 0 && b->data[b->size - 1] != '{') quern_add(b, ",", 1);
	quern_add_string(b, name, quern_length(name));
	quern_add(b, ":", 1);
}

// Appends a member that is a string.
static inline void quern_text_member(quern_builder *b, const char *name, const void *text, uint32_t size) {
	quern_member(b, name);
	quern_add_string(b, text, size);
}

// Appends a member that is a number.
static inline void quern_number_member(quern_builder *b, const char *name, int64_t number) {
	quern_member(b, name);
	quern_add_number(b, number);
}

// Begins a nested object, which needs its own end.
static inline void quern_object_member(quern_builder *b, const char *name) {
	quern_member(b, name);
	quern_add(b, "{", 1);
}

// Ends the innermost object.
static inline void quern_end_object(quern_builder *b) { quern_add(b, "}", 1); }

#ifdef __cplusplus
}
#endif

#endif
