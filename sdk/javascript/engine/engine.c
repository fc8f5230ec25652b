// The JavaScript engine of Quern: QuickJS-ng as a handler of quern_v1.
//
// _initialize starts the interpreter, evaluates the engine's own JavaScript (main.js and what it imports, bundled into
// scripts.h at build time) and has it load the user's module. The host takes its snapshot then. quern_handle calls one
// function of main.js.
//
// This file only gives JavaScript what it cannot have otherwise: the functions of quern_v1, files, UTF-8, digests and the
// queue of pending jobs, as methods of one object. What a handler sees is made of them in JavaScript.
//
// What a task leaves in memory is gone with it. So nothing that lives as long as the task is freed.
#define _GNU_SOURCE // memmem
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "digest.h"
#include "quern.h"
#include "quickjs.h"
#include "scripts.h"
#include "sources.h"
#include "utf8.h"

// Deep recursion must become a RangeError before it leaves the stack, which the linker puts below all else. The reserve is
// for C functions that do not check. STACK is the linker's, from the script that builds this.
enum { STACK_RESERVE = 128 << 10 };

// The garbage collector first runs when the heap has grown by this much: most tasks end before.
enum { COLLECT_AFTER = 16 << 20 };

static JSRuntime *runtime;
static JSContext *ctx;
static JSValue handler = JS_UNDEFINED; // the user's function; undefined if the plugin did not start
static JSValue task;                   // its argument
static JSValue end_task;               // main.js's function for what is left to do when the handler has returned or thrown
static JSValue whereabouts;            // main.js's function that returns where the handler is
static JSValue new_error;              // main.js's function that makes a QuernError of a function's name and an error's
static JSClassID plain_object;
static JSAtom then;

// Of each task:
static uint32_t calls;   // its number since the start
static bool seeded;      // Math.random has a seed
static uint64_t seed[2];
static bool rejections;  // a promise was rejected without a handler
static int64_t origin;   // of performance.now, in nanoseconds; 0 before its first use
static uint32_t polls;   // how often QuickJS has called interrupted
static bool due;         // the next call of interrupted notes where the handler is
static const char *place; // what quern_where answers
static int64_t look_at;  // when it is nearly the task's deadline, in milliseconds of Unix time; 0: not known yet, -1: never

// ---- Memory ----

// The allocator of C with a reserve. It is freed when memory is denied for the first time, so that QuickJS can make an error of
// that with its stack.
enum { RESERVE = 16 << 10 };
static void *reserve;

static void *unless_denied(void *data) {
	if (!data) {
		free(reserve);
		reserve = NULL;
	}
	return data;
}

static void *allocate(void *opaque, size_t size) { (void)opaque; return unless_denied(malloc(size)); }
static void *allocate_zeros(void *opaque, size_t count, size_t size) { (void)opaque; return unless_denied(calloc(count, size)); }
static void *resize(void *opaque, void *data, size_t size) { (void)opaque; return unless_denied(realloc(data, size)); }
static void release(void *opaque, void *data) { (void)opaque; free(data); }
static size_t size_of(const void *data) { return malloc_usable_size((void *)data); }

static const JSMallocFunctions memory = {
	.js_calloc = allocate_zeros, .js_malloc = allocate, .js_free = release, .js_realloc = resize, .js_malloc_usable_size = size_of,
};

// ---- Values ----

// Bytes of a JavaScript value, which live as long as the value.
typedef struct {
	const char *data;
	size_t size;
} Bytes;

// Takes the bytes of a string as UTF-8, or of a Uint8Array or ArrayBuffer. Undefined and null have none.
static bool bytes_of(Bytes *b, JSValueConst v) {
	*b = (Bytes){"", 0};
	if (JS_IsUndefined(v) || JS_IsNull(v)) return true;
	if (JS_IsString(v)) {
		b->data = JS_ToCStringLen(ctx, &b->size, v);
		if (b->data) utf8_mend_surrogates((char *)b->data, b->size);
		return b->data != NULL;
	}
	if (JS_IsArrayBuffer(v)) {
		b->data = (char *)JS_GetArrayBuffer(ctx, &b->size, v);
	} else {
		b->data = (char *)JS_GetUint8Array(ctx, &b->size, v);
	}
	if (b->data) return true;
	if (b->size > 0 || JS_HasException(ctx)) return false;
	b->data = "";
	return true;
}

// Throws the error of a function of quern_v1.
static JSValue refused(const char *function, int32_t answer) {
	static const char *const names[] = {"", "EINVAL", "EFAULT", "EDENIED", "ENOTFOUND", "ETOOBIG", "EQUOTA", "ECONFLICT",
		"ECANCELED", "EAGAIN", "ESTATE", "ELIMIT"};
	const char *name = answer < 0 && answer >= QUERN_ELIMIT ? names[-answer] : "EUNKNOWN";
	JSValue arguments[] = {JS_NewString(ctx, function), JS_NewString(ctx, name)};
	JSValue err = JS_Call(ctx, new_error, JS_UNDEFINED, 2, arguments);
	return JS_IsException(err) ? err : JS_Throw(ctx, err);
}

static JSValue answered(const char *function, int32_t answer) {
	return answer < 0 ? refused(function, answer) : JS_UNDEFINED;
}

// Reads all bytes of the slot or the input by one of the two functions below. The buffer is one longer, and ends with 0.
typedef int32_t Reader(uint32_t offset, void *to, uint32_t capacity);

static char *read_all(Reader *reader, size_t size) {
	char *data = js_malloc(ctx, size + 1);
	if (!data) return NULL;
	reader(0, data, (uint32_t)size);
	data[size] = 0;
	return data;
}

static void *reallocate(JSRuntime *rt, void *opaque, void *data, size_t size) {
	(void)opaque;
	if (size > 0) return js_realloc_rt(rt, data, size);
	js_free_rt(rt, data);
	return NULL;
}

// Makes a Uint8Array that owns data, which js_malloc has made.
static JSValue array_of(char *data, size_t size) {
	if (!data) return JS_EXCEPTION;
	return JS_NewUint8Array(ctx, (uint8_t *)data, size, reallocate, NULL, false);
}

// Makes a string of bytes that may be invalid UTF-8, which becomes U+FFFD.
static JSValue text_of(const char *data, size_t size) {
	if (utf8_valid(data, size) == size) return JS_NewStringLen(ctx, data, size);
	char *mended = js_malloc(ctx, UTF8_MENDED * size);
	if (!mended) return JS_EXCEPTION;
	JSValue text = JS_NewStringLen(ctx, mended, utf8_mend(data, size, mended));
	js_free(ctx, mended);
	return text;
}

static JSValue slot_bytes(const char *function, int32_t size) {
	if (size < 0) return refused(function, size);
	return array_of(read_all(quern_result_read, (size_t)size), (size_t)size);
}

static JSValue slot_text(const char *function, int32_t size) {
	if (size < 0) return refused(function, size);
	char *data = read_all(quern_result_read, (size_t)size);
	if (!data) return JS_EXCEPTION;
	JSValue text = text_of(data, (size_t)size);
	js_free(ctx, data);
	return text;
}

// ---- The functions of quern_v1 ----

// A method with the name and number of arguments that it has in JavaScript. QuickJS fills up missing arguments.
#define METHOD(name) static JSValue js_##name(JSContext *c, JSValueConst self, int count, JSValueConst *a)
#define UNUSED (void)c, (void)self, (void)count, (void)a
#define TAKE(bytes, argument) \
	Bytes bytes; \
	if (!bytes_of(&bytes, argument)) return JS_EXCEPTION
#define TAKE_NUMBER(type, number, argument, convert) \
	type number = 0; \
	if (convert(ctx, &number, argument) < 0) return JS_EXCEPTION
#define B(bytes) bytes.data, (uint32_t)bytes.size

METHOD(input) {
	UNUSED;
	int32_t size = quern_input_size();
	if (size < 0) return refused("input_size", size);
	return array_of(read_all(quern_input_read, (size_t)size), (size_t)size);
}

METHOD(inputText) {
	UNUSED;
	int32_t size = quern_input_size();
	if (size < 0) return refused("input_size", size);
	char *data = read_all(quern_input_read, (size_t)size);
	if (!data) return JS_EXCEPTION;
	JSValue text = text_of(data, (size_t)size);
	js_free(ctx, data);
	return text;
}

METHOD(inputJSON) {
	UNUSED;
	int32_t size = quern_input_size();
	if (size < 0) return refused("input_size", size);
	char *data = read_all(quern_input_read, (size_t)size);
	if (!data) return JS_EXCEPTION;
	size_t valid = utf8_valid(data, (size_t)size); // the parser would take surrogates
	JSValue value = valid < (size_t)size ? JS_ThrowSyntaxError(ctx, "invalid UTF-8 at byte %zu", valid)
		: JS_ParseJSON(ctx, data, (size_t)size, "input");
	js_free(ctx, data);
	return value;
}

METHOD(output) {
	UNUSED;
	TAKE(data, a[0]);
	return answered("output_write", quern_output_write(B(data)));
}

METHOD(setError) {
	UNUSED;
	TAKE(text, a[0]);
	return answered("error_set", quern_error_set(B(text)));
}

METHOD(retryAfter) {
	UNUSED;
	TAKE_NUMBER(int64_t, ms, a[0], JS_ToInt64);
	return answered("retry_after", quern_retry_after(ms));
}

// Without a task, as in the warm call, its texts are empty and its numbers 0.
METHOD(taskText) {
	UNUSED;
	TAKE_NUMBER(int32_t, field, a[0], JS_ToInt32);
	int32_t size = quern_task_text(field);
	return size == QUERN_ESTATE ? JS_NewString(ctx, "") : slot_text("task_text", size);
}

METHOD(taskNumber) {
	UNUSED;
	TAKE_NUMBER(int32_t, field, a[0], JS_ToInt32);
	int64_t number = 0;
	int32_t answer = quern_task_number(field, &number);
	return answer < 0 && answer != QUERN_ESTATE ? refused("task_number", answer) : JS_NewInt64(ctx, number);
}

METHOD(cancelled) {
	UNUSED;
	return JS_NewBool(ctx, quern_cancelled() == 1);
}

static void note_place(void);

// The host stops a task at limits.log, without notice. So the handler's place is noted each time its log has grown by a quarter.
enum { LOG_OVERHEAD = 128 };                // bytes for each line, as the host counts
static int64_t logged, log_noted = 1 << 10; // bytes

METHOD(log) {
	UNUSED;
	int64_t length = 0;
	if (JS_IsString(a[1])) JS_GetLength(ctx, a[1], &length);
	if ((logged += length + LOG_OVERHEAD) >= log_noted) {
		note_place();
		log_noted = logged + logged / 4;
	}
	TAKE_NUMBER(int32_t, level, a[0], JS_ToInt32);
	TAKE(line, a[1]);
	TAKE(fields, a[2]);
	return answered("log", quern_log(level, B(line), B(fields)));
}

METHOD(progress) {
	UNUSED;
	TAKE_NUMBER(double, fraction, a[0], JS_ToFloat64);
	TAKE(message, a[1]);
	return answered("progress", quern_progress(fraction, B(message)));
}

METHOD(checkpointSave) {
	UNUSED;
	TAKE(value, a[0]);
	return answered("checkpoint_save", quern_checkpoint_save(B(value)));
}

METHOD(checkpointLoad) {
	UNUSED;
	int32_t size = quern_checkpoint_load();
	return size == QUERN_ENOTFOUND ? JS_UNDEFINED : slot_bytes("checkpoint_load", size);
}

METHOD(enqueue) {
	UNUSED;
	TAKE(queue, a[0]);
	TAKE(body, a[1]);
	TAKE(options, a[2]);
	return slot_text("enqueue", quern_enqueue(B(queue), B(body), B(options)));
}

METHOD(dependencyResult) {
	UNUSED;
	TAKE(id, a[0]);
	return slot_bytes("dependency_result", quern_dependency_result(B(id)));
}

METHOD(kvGet) {
	UNUSED;
	TAKE(bucket, a[0]);
	TAKE(key, a[1]);
	int32_t size = quern_kv_get(B(bucket), B(key));
	return size == QUERN_ENOTFOUND ? JS_UNDEFINED : slot_bytes("kv_get", size);
}

METHOD(kvSet) {
	UNUSED;
	TAKE(bucket, a[0]);
	TAKE(key, a[1]);
	TAKE(value, a[2]);
	TAKE_NUMBER(int64_t, ttl, a[3], JS_ToInt64);
	return answered("kv_set", quern_kv_set(B(bucket), B(key), B(value), ttl));
}

METHOD(kvDelete) {
	UNUSED;
	TAKE(bucket, a[0]);
	TAKE(key, a[1]);
	int32_t answer = quern_kv_delete(B(bucket), B(key));
	return answer < 0 ? refused("kv_delete", answer) : JS_NewBool(ctx, answer > 0);
}

// Takes and returns a BigInt.
METHOD(kvIncrement) {
	UNUSED;
	TAKE(bucket, a[0]);
	TAKE(key, a[1]);
	TAKE_NUMBER(int64_t, delta, a[2], JS_ToBigInt64);
	int64_t sum = 0;
	int32_t answer = quern_kv_increment(B(bucket), B(key), delta, &sum);
	return answer < 0 ? refused("kv_increment", answer) : JS_NewBigInt64(ctx, sum);
}

// An old value that is undefined means that there is none. Returns true if the value has been set, else the present value, or
// undefined without one.
METHOD(kvSwap) {
	UNUSED;
	TAKE(bucket, a[0]);
	TAKE(key, a[1]);
	TAKE(old, a[2]);
	TAKE(value, a[3]);
	TAKE_NUMBER(int64_t, ttl, a[4], JS_ToInt64);
	uint32_t old_size = JS_IsUndefined(a[2]) ? QUERN_ABSENT : (uint32_t)old.size;
	int32_t answer = quern_kv_swap(B(bucket), B(key), old.data, old_size, B(value), ttl);
	if (answer == QUERN_ECONFLICT) return slot_bytes("kv_swap", quern_result_size());
	if (answer == QUERN_ENOTFOUND) return JS_UNDEFINED;
	return answer < 0 ? refused("kv_swap", answer) : JS_TRUE;
}

METHOD(kvList) {
	UNUSED;
	TAKE(bucket, a[0]);
	TAKE(prefix, a[1]);
	TAKE(after, a[2]);
	TAKE_NUMBER(int32_t, limit, a[3], JS_ToInt32);
	int32_t size = quern_kv_list(B(bucket), B(prefix), B(after), limit);
	if (size < 0) return refused("kv_list", size);
	char *data = read_all(quern_result_read, (size_t)size);
	JSValue keys = JS_NewArray(ctx);
	if (!data || JS_IsException(keys)) return JS_EXCEPTION;
	quern_view rest = quern_view_of(data, (uint32_t)size), key;
	for (uint32_t i = 0; quern_next_key(&rest, &key); i++) {
		if (JS_SetPropertyUint32(ctx, keys, i, JS_NewStringLen(ctx, key.data, key.size)) < 0) return JS_EXCEPTION;
	}
	js_free(ctx, data);
	return keys;
}

// Notes what the handler waits for until waited is called; it is a string or undefined.
static const char *wait_for(JSValueConst what) {
	const char *before = place, *text = JS_IsString(what) ? JS_ToCString(ctx, what) : NULL;
	if (text) place = text;
	return before;
}

static void waited(const char *before) {
	if (place != before) JS_FreeCString(ctx, place);
	place = before;
}

// Returns the answer as it is in the slot: the head's length, the head and the body. The third argument is for wait_for.
METHOD(http) {
	UNUSED;
	TAKE(head, a[0]);
	TAKE(body, a[1]);
	const char *before = wait_for(a[2]);
	int32_t answer = quern_http(B(head), B(body));
	waited(before);
	return slot_bytes("http", answer);
}

// Reads the answer of a database: how many rows are affected, names and OIDs of the columns, and the rows, objects by these names
// whose values are null, strings, or a Uint8Array for a bytea. Of an error its fields, an object by their letters.
static JSValue answer_of(const char *function, int32_t size) {
	if (size < 0) return refused(function, size);
	char *data = read_all(quern_result_read, (size_t)size);
	if (!data) return JS_EXCEPTION;
	quern_rows answer;
	quern_view text;
	if (quern_split_rows(data, (uint32_t)size, &answer) < 0) {
		JSValue fields = JS_NewObject(ctx);
		int32_t letter;
		while (quern_next_value(&answer.values, &letter, &text)) {
			char name[] = {(char)letter, 0};
			if (JS_SetPropertyStr(ctx, fields, name, text_of(text.data, text.size)) < 0) return JS_EXCEPTION;
		}
		js_free(ctx, data);
		return fields;
	}
	JSAtom *atoms = js_malloc(ctx, answer.columns * sizeof *atoms + 1);
	JSValue names = JS_NewArray(ctx), oids = JS_NewArray(ctx), rows = JS_NewArray(ctx);
	if (!atoms || JS_IsException(names) || JS_IsException(oids) || JS_IsException(rows)) return JS_EXCEPTION;
	uint32_t oid;
	for (uint32_t i = 0; quern_next_column(&answer.names, &oid, &text); i++) {
		atoms[i] = JS_NewAtomLen(ctx, text.data, text.size);
		if (atoms[i] == JS_ATOM_NULL || JS_SetPropertyUint32(ctx, names, i, JS_AtomToString(ctx, atoms[i])) < 0 ||
			JS_SetPropertyUint32(ctx, oids, i, JS_NewUint32(ctx, oid)) < 0) return JS_EXCEPTION;
	}
	for (int32_t n = 0; n < answer.rows; n++) {
		JSValue row = JS_NewObject(ctx);
		int32_t kind;
		for (uint32_t i = 0; i < answer.columns && quern_next_value(&answer.values, &kind, &text); i++) {
			JSValue value = kind == QUERN_SQL_NULL ? JS_NULL
				: kind == QUERN_SQL_TEXT ? text_of(text.data, text.size) : JS_NewUint8ArrayCopy(ctx, (const uint8_t *)text.data, text.size);
			if (JS_DefinePropertyValue(ctx, row, atoms[i], value, JS_PROP_C_W_E) < 0) return JS_EXCEPTION;
		}
		if (JS_SetPropertyUint32(ctx, rows, (uint32_t)n, row) < 0) return JS_EXCEPTION;
	}
	js_free(ctx, atoms);
	js_free(ctx, data);
	JSValueConst parts[] = {JS_NewInt64(ctx, answer.affected), names, oids, rows};
	return JS_NewArrayFrom(ctx, 4, parts);
}

// The parameters are values of sdk/ABI.md.
METHOD(sql) {
	UNUSED;
	TAKE(database, a[0]);
	TAKE(statement, a[1]);
	TAKE(parameters, a[2]);
	const char *before = wait_for(a[3]);
	int32_t answer = quern_sql(B(database), B(statement), B(parameters));
	waited(before);
	return answer_of("sql", answer);
}

METHOD(sqlCommit) {
	UNUSED;
	TAKE(database, a[0]);
	TAKE(step, a[1]);
	TAKE(value, a[2]);
	return answer_of("sql_commit", quern_sql_commit(B(database), B(step), B(value)));
}

METHOD(sqlRollback) {
	UNUSED;
	TAKE(database, a[0]);
	return answered("sql_rollback", quern_sql_rollback(B(database)));
}

METHOD(sqlStep) {
	UNUSED;
	TAKE(database, a[0]);
	TAKE(step, a[1]);
	int32_t size = quern_sql_step(B(database), B(step));
	return size == QUERN_ENOTFOUND ? JS_UNDEFINED : slot_bytes("sql_step", size);
}

METHOD(configGet) {
	UNUSED;
	TAKE(name, a[0]);
	int32_t size = quern_config_get(B(name));
	return size == QUERN_ENOTFOUND ? JS_UNDEFINED : slot_text("config_get", size);
}

METHOD(secretGet) {
	UNUSED;
	TAKE(name, a[0]);
	return slot_bytes("secret_get", quern_secret_get(B(name)));
}

// How many calls of the handler there have been since the start, with this one.
METHOD(call) {
	UNUSED;
	return JS_NewUint32(ctx, calls);
}

// Milliseconds of the monotonic clock.
METHOD(now) {
	UNUSED;
	int64_t ns = 0;
	int32_t answer = quern_clock(QUERN_CLOCK_MONOTONIC, &ns);
	return answer < 0 ? refused("clock", answer) : JS_NewFloat64(ctx, (double)ns / 1e6);
}

// Milliseconds since the first call in this task.
METHOD(elapsed) {
	UNUSED;
	int64_t ns = 0;
	int32_t answer = quern_clock(QUERN_CLOCK_MONOTONIC, &ns);
	if (origin == 0) origin = ns;
	return answer < 0 ? refused("clock", answer) : JS_NewFloat64(ctx, (double)(ns - origin) / 1e6);
}

// There is no quern_sleep in _initialize, where WASI's clock has to do.
// The second argument is for wait_for.
METHOD(sleep) {
	UNUSED;
	TAKE_NUMBER(int64_t, ms, a[0], JS_ToInt64);
	const char *before = wait_for(a[1]);
	int32_t answer = quern_sleep(ms);
	waited(before);
	if (answer != QUERN_ESTATE) return answered("sleep", answer);
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	nanosleep(&time, NULL);
	return JS_UNDEFINED;
}

// Fills a Uint8Array, in pieces.
METHOD(random) {
	UNUSED;
	TAKE(bytes, a[0]);
	for (size_t at = 0; at < bytes.size; at += QUERN_MAX_RANDOM) {
		size_t size = bytes.size - at < QUERN_MAX_RANDOM ? bytes.size - at : QUERN_MAX_RANDOM;
		int32_t answer = quern_random((char *)bytes.data + at, (uint32_t)size);
		if (answer < 0) return refused("random", answer);
	}
	return JS_UNDEFINED;
}

// ---- What else JavaScript cannot do ----

// Math.random: xoroshiro128+, seeded by the first draw of each task.
METHOD(draw) {
	UNUSED;
	if (!seeded) {
		int32_t answer = quern_random(seed, sizeof seed);
		if (answer < 0) return refused("random", answer);
		seed[0] |= seed[0] == 0 && seed[1] == 0;
		seeded = true;
	}
	uint64_t s0 = seed[0], s1 = seed[1], sum = s0 + s1;
	s1 ^= s0;
	seed[0] = (s0 << 24 | s0 >> 40) ^ s1 ^ s1 << 16;
	seed[1] = s1 << 37 | s1 >> 27;
	return JS_NewFloat64(ctx, (double)(sum >> 11) * 0x1p-53);
}

// The UTF-8 of a string.
METHOD(encode) {
	UNUSED;
	TAKE(text, a[0]);
	return JS_NewUint8ArrayCopy(ctx, (const uint8_t *)text.data, text.size);
}

// The string of UTF-8. Invalid bytes become U+FFFD, or with a second argument that is true the answer undefined.
METHOD(decode) {
	UNUSED;
	TAKE(data, a[0]);
	if (JS_ToBool(ctx, a[1]) && utf8_valid(data.data, data.size) < data.size) return JS_UNDEFINED;
	return text_of(data.data, data.size);
}

// digest(bits, bytes): SHA-1 for 1, else SHA-2 with that many bits.
METHOD(digest) {
	UNUSED;
	TAKE_NUMBER(int32_t, bits, a[0], JS_ToInt32);
	TAKE(data, a[1]);
	uint8_t sum[DIGEST_MAX];
	size_t size = digest_sum(bits, (const uint8_t *)data.data, data.size, sum);
	if (size == 0) return JS_ThrowTypeError(ctx, "no digest has %d bits", bits);
	return JS_NewUint8ArrayCopy(ctx, sum, size);
}

static char *read_file(const char *path, size_t *size) {
	FILE *file = fopen(path, "rb");
	if (!file) return NULL;
	setvbuf(file, NULL, _IONBF, 0);
	char *data = NULL;
	if (fseek(file, 0, SEEK_END) == 0) {
		*size = (size_t)ftell(file);
		rewind(file);
		data = js_malloc(ctx, *size + 1);
		if (data) data[*size = fread(data, 1, *size, file)] = 0;
	}
	fclose(file);
	return data;
}

// The contents of a file; undefined if it cannot be read.
METHOD(readFile) {
	UNUSED;
	const char *path = JS_ToCString(ctx, a[0]);
	if (!path) return JS_EXCEPTION;
	size_t size;
	char *data = read_file(path, &size);
	if (data) return array_of(data, size);
	return JS_HasException(ctx) ? JS_EXCEPTION : JS_UNDEFINED;
}

#define BUNDLE "/app/handler.js"

// source(row, column): the position of the bundle in the user's sources, as "name:row:column"; undefined if it is unknown. Rows and
// columns are counted from 1.
METHOD(source) {
	UNUSED;
	TAKE_NUMBER(uint32_t, row, a[0], JS_ToUint32);
	TAKE_NUMBER(uint32_t, column, a[1], JS_ToUint32);
	SourcePosition found;
	if (row < 1 || column < 1 || !sources_find(BUNDLE ".positions", row - 1, column - 1, &found)) return JS_UNDEFINED;
	char text[sizeof found.name + 2 * sizeof ":4294967295"];
	int size = snprintf(text, sizeof text, "%s:%u:%u", found.name, (unsigned)found.row + 1, (unsigned)found.column + 1);
	return text_of(text, (size_t)size);
}

// around(row, column): the text of the bundle's row in front of the position, and behind it, as two strings; undefined if it is unknown.
METHOD(around) {
	UNUSED;
	enum { BEFORE = 120, AFTER = 60 };
	TAKE_NUMBER(uint32_t, row, a[0], JS_ToUint32);
	TAKE_NUMBER(uint32_t, column, a[1], JS_ToUint32);
	char text[BEFORE + AFTER];
	int size, in_front = row < 1 || column < 1 ? -1 : sources_around(BUNDLE, row - 1, column - 1, BEFORE, AFTER, text, &size);
	if (in_front < 0) return JS_UNDEFINED;
	JSValueConst parts[] = {text_of(text, (size_t)in_front), text_of(text + in_front, (size_t)(size - in_front))};
	return JS_NewArrayFrom(ctx, 2, parts);
}

// The variables that the manifest grants. quern plugin build makes import.meta.env of process.env.
static JSValue environment(void) {
	extern char **environ;
	JSValue object = JS_NewObject(ctx);
	for (char **entry = environ; entry && *entry; entry++) {
		const char *equals = strchr(*entry, '=');
		if (!equals) continue;
		JSAtom name = JS_NewAtomLen(ctx, *entry, (size_t)(equals - *entry));
		JS_DefinePropertyValue(ctx, object, name, text_of(equals + 1, strlen(equals + 1)), JS_PROP_C_W_E);
		JS_FreeAtom(ctx, name);
	}
	return object;
}

// evaluate(source, name): evaluates a module, and returns its namespace and the promise of its evaluation.
METHOD(evaluate) {
	UNUSED;
	TAKE(source, a[0]);
	const char *name = JS_ToCString(ctx, a[1]);
	if (!name) return JS_EXCEPTION;
	// The parser wants a 0 behind the source.
	char *text = js_malloc(ctx, source.size + 1);
	if (!text) return JS_EXCEPTION;
	memcpy(text, source.data, source.size);
	text[source.size] = 0;
	JSValue module = JS_Eval(ctx, text, source.size, name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
	js_free(ctx, text);
	if (JS_IsException(module)) return module;
	JSModuleDef *def = JS_VALUE_GET_PTR(module);
	if (JS_DefinePropertyValueStr(ctx, JS_GetImportMeta(ctx, def), "env", environment(), JS_PROP_C_W_E) < 0) return JS_EXCEPTION;
	JSValue done = JS_EvalFunction(ctx, module);
	if (JS_IsException(done)) return done;
	JSValueConst parts[] = {JS_GetModuleNamespace(ctx, def), done};
	return JS_NewArrayFrom(ctx, 2, parts);
}

// Evaluates the script with URL and URLSearchParams, and returns them.
METHOD(evaluateURL) {
	UNUSED;
	return JS_Eval(ctx, url_js, sizeof url_js - 1, "quern:url", JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_STRICT);
}

// Runs what is pending until nothing is. An exception of a job ends it: queueMicrotask's functions may throw.
static bool run_jobs(void) {
	JSContext *of;
	int ran;
	while ((ran = JS_ExecutePendingJob(runtime, &of)) > 0) {}
	return ran == 0;
}

METHOD(runJobs) {
	UNUSED;
	return run_jobs() ? JS_UNDEFINED : JS_EXCEPTION;
}

// ---- Modules that the engine provides ----

static JSValue provided; // objects by the names of modules, whose properties are the exports

// provide(name, object): makes a module that the user's may import.
METHOD(provide) {
	UNUSED;
	JSAtom name = JS_ValueToAtom(ctx, a[0]);
	return JS_SetProperty(ctx, provided, name, JS_DupValue(ctx, a[1])) < 0 ? JS_EXCEPTION : JS_UNDEFINED;
}

static int set_exports(JSContext *c, JSModuleDef *module) {
	(void)c;
	JSValue object = JS_GetModulePrivateValue(ctx, module);
	JSPropertyEnum *names;
	uint32_t count;
	if (JS_GetOwnPropertyNames(ctx, &names, &count, object, JS_GPN_STRING_MASK) < 0) return -1;
	for (uint32_t i = 0; i < count; i++) {
		const char *name = JS_AtomToCString(ctx, names[i].atom);
		if (!name || JS_SetModuleExport(ctx, module, name, JS_GetProperty(ctx, object, names[i].atom)) < 0) return -1;
	}
	return 0;
}

static JSModuleDef *load_module(JSContext *c, const char *name, void *opaque) {
	(void)c, (void)opaque;
	JSValue object = JS_GetPropertyStr(ctx, provided, name);
	if (JS_IsUndefined(object)) {
		bool of_node = strncmp(name, "node:", 5) == 0;
		JS_ThrowReferenceError(ctx, "there is no module \"%s\"%s", name,
			of_node ? ": Node's own modules do not exist here" : ": bundle it into handler.js");
		return NULL;
	}
	JSModuleDef *module = JS_NewCModule(ctx, name, set_exports);
	if (!module || JS_SetModulePrivateValue(ctx, module, object) < 0) return NULL;
	JSPropertyEnum *names;
	uint32_t count;
	if (JS_GetOwnPropertyNames(ctx, &names, &count, object, JS_GPN_STRING_MASK) < 0) return NULL;
	for (uint32_t i = 0; i < count; i++) {
		const char *export = JS_AtomToCString(ctx, names[i].atom);
		if (!export || JS_AddModuleExport(ctx, module, export) < 0) return NULL;
	}
	return module;
}


static JSValue rejection; // main.js's function for promises that are rejected without a handler, and that get one later

static void rejected(JSContext *c, JSValueConst promise, JSValueConst reason, bool handled, void *opaque) {
	(void)c, (void)opaque;
	rejections = true;
	JSValueConst arguments[] = {promise, reason, JS_NewBool(ctx, handled)};
	JSValue done = JS_Call(ctx, rejection, JS_UNDEFINED, 3, arguments);
	if (JS_IsException(done)) JS_GetException(ctx);
}

// serve(handler, task): from now on the handler gets the task.
METHOD(serve) {
	UNUSED;
	handler = JS_DupValue(ctx, a[0]);
	task = JS_DupValue(ctx, a[1]);
	return JS_UNDEFINED;
}

// The host stops a task at its deadline, and at limits.cpu, without notice. So where a handler is that runs for long is noted
// before: shortly before the deadline, and each time it has run twice as long.
enum { NEARLY = 500, LONG = 64 };

// quern_where: where the handler was when it was noted last, or what it waits for. See sdk/ABI.md.
__attribute__((export_name("quern_where"))) const char *where(void) { return place; }

static bool looking; // note_place runs

// note_place notes where the handler is.
static void note_place(void) {
	if (looking || JS_IsUndefined(handler)) return;
	looking = true;
	JSValue frames = JS_Call(ctx, whereabouts, JS_UNDEFINED, 0, NULL);
	const char *text = JS_IsException(frames) ? NULL : JS_ToCString(ctx, frames);
	if (!text) JS_GetException(ctx);
	due = !text || *text == '\0'; // between two jobs no function runs
	if (!due) place = text;
	else if (!place) place = "or after callbacks that queue others, as await and queueMicrotask do";
	looking = false;
}

// QuickJS calls it once in 9,973 jumps and calls of functions.
static int interrupted(JSRuntime *rt, void *opaque) {
	(void)rt, (void)opaque;
	if (looking || JS_IsUndefined(handler)) return 0;
	due |= ++polls >= LONG && (polls & (polls - 1)) == 0;
	int64_t now = 0;
	if (look_at >= 0 && quern_clock(QUERN_CLOCK_REAL, &now) == 0) {
		now /= 1000000;
		if (look_at == 0) {
			int64_t deadline = 0;
			quern_task_number(QUERN_TASK_DEADLINE, &deadline);
			int64_t before = (deadline - now) / 4;
			look_at = deadline <= 0 ? -1 : deadline - (before < NEARLY ? before : NEARLY);
		}
		if (look_at > 0 && now >= look_at) {
			look_at = -1;
			due = true;
		}
	}
	if (due) note_place();
	return 0;
}

// begin(endTask, newError, rejection, whereabouts): what main.js gives.
METHOD(begin) {
	UNUSED;
	whereabouts = JS_DupValue(ctx, a[3]);
	JS_SetInterruptHandler(runtime, interrupted, NULL);
	end_task = JS_DupValue(ctx, a[0]);
	new_error = JS_DupValue(ctx, a[1]);
	rejection = JS_DupValue(ctx, a[2]);
	JS_SetHostPromiseRejectionTracker(runtime, rejected, NULL);
	return JS_UNDEFINED;
}

#define ENTRY(name, arguments) JS_CFUNC_DEF(#name, arguments, js_##name)
static const JSCFunctionListEntry methods[] = {
	ENTRY(input, 0), ENTRY(inputText, 0), ENTRY(inputJSON, 0), ENTRY(output, 1), ENTRY(setError, 1), ENTRY(retryAfter, 1),
	ENTRY(taskText, 1), ENTRY(taskNumber, 1), ENTRY(cancelled, 0), ENTRY(log, 3), ENTRY(progress, 2),
	ENTRY(checkpointSave, 1), ENTRY(checkpointLoad, 0), ENTRY(enqueue, 3), ENTRY(dependencyResult, 1), ENTRY(kvGet, 2), ENTRY(kvSet, 4),
	ENTRY(kvDelete, 2), ENTRY(kvIncrement, 3), ENTRY(kvSwap, 5), ENTRY(kvList, 4), ENTRY(http, 3), ENTRY(sql, 4), ENTRY(sqlCommit, 3),
	ENTRY(sqlRollback, 1), ENTRY(sqlStep, 2), ENTRY(configGet, 1),
	ENTRY(secretGet, 1), ENTRY(call, 0), ENTRY(now, 0), ENTRY(elapsed, 0), ENTRY(sleep, 2), ENTRY(random, 1), ENTRY(draw, 0), ENTRY(encode, 1),
	ENTRY(decode, 2), ENTRY(digest, 2), ENTRY(readFile, 1), ENTRY(source, 2), ENTRY(around, 2), ENTRY(evaluate, 2), ENTRY(evaluateURL, 0), ENTRY(runJobs, 0),
	ENTRY(provide, 2), ENTRY(serve, 2), ENTRY(begin, 4),
};

// ---- The handler ----

// Reports an exception that main.js could not: there was no memory or no stack left for it.
static int32_t give_up(void) {
	static const char lost[] = "the engine has lost the error: there is too little memory left to tell it";
	JSValue exception = JS_GetException(ctx);
	size_t size = 0;
	const char *text = JS_ToCStringLen(ctx, &size, exception);
	if (!text) {
		text = lost;
		size = sizeof lost - 1;
	}
	if (quern_error_set(text, (uint32_t)size) < 0) {
		quern_log(QUERN_ERROR, text, (uint32_t)size, NULL, 0);
	}
	return QUERN_FAILED;
}

__attribute__((constructor)) static void start(void) {
	reserve = malloc(RESERVE);
	runtime = JS_NewRuntime2(&memory, NULL);
	JS_SetMaxStackSize(runtime, STACK - STACK_RESERVE);
	ctx = JS_NewContext(runtime);
	JS_SetGCThreshold(runtime, (size_t)-1);
	JS_SetModuleLoaderFunc(runtime, NULL, load_module, NULL);
	provided = JS_NewObject(ctx);
	JSValue native = JS_NewObject(ctx);
	plain_object = JS_GetClassID(native);
	then = JS_NewAtom(ctx, "then");
	JS_SetPropertyFunctionList(ctx, native, methods, sizeof methods / sizeof methods[0]);
	JSValue global = JS_GetGlobalObject(ctx);
	JSValue prelude = JS_Eval(ctx, prelude_js, sizeof prelude_js - 1, "quern:engine", JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_STRICT);
	JSValue done = JS_Call(ctx, prelude, global, 1, &native);
	if (JS_IsException(done)) {
		give_up();
		abort();
	}
	JS_RunGC(runtime);
	JSMemoryUsage usage;
	JS_ComputeMemoryUsage(runtime, &usage);
	JS_SetGCThreshold(runtime, (size_t)usage.malloc_size + COLLECT_AFTER);
}

// Calls the handler and runs what is pending. Returns what the handler returned, the value of its promise, or the promise itself
// if that has no value yet.
static JSValue call_handler(void) {
	JSValueConst arguments[] = {task};
	JSValue result = JS_Call(ctx, handler, JS_UNDEFINED, 1, arguments);
	if (JS_IsException(result)) return result;
	bool promise = JS_IsPromise(result);
	if (promise) JS_PromiseMarkAsHandled(ctx, result);
	if (JS_IsJobPending(runtime) && !run_jobs()) return JS_EXCEPTION;
	if (promise && JS_PromiseState(ctx, result) == JS_PROMISE_FULFILLED) return JS_PromiseResult(ctx, result);
	return result;
}

// Writes a result that is a string, an array, or a plain object that is no promise. Returns false for any other, and if it fails.
static bool written(JSValueConst result) {
	JSValue text = result;
	if (JS_GetClassID(result) == plain_object && JS_HasProperty(ctx, result, then) != 0) return false;
	if (JS_GetClassID(result) == plain_object || JS_IsArray(result)) {
		text = JS_JSONStringify(ctx, result, JS_UNDEFINED, JS_UNDEFINED);
		if (JS_IsException(text)) JS_GetException(ctx);
	}
	Bytes bytes;
	if (!JS_IsString(text) || !bytes_of(&bytes, text)) return false;
	if (!JS_IsString(result) && memmem(bytes.data, bytes.size, "null", 4)) return false; // perhaps of NaN, which main.js refuses
	return quern_output_write(B(bytes)) == 0;
}

// Ends the usual cases here: each call of JavaScript touches memory that the host has to reset. main.js does the rest.
QUERN_HANDLER int32_t handle(void) {
	calls++;
	seeded = rejections = false;
	origin = 0;
	polls = 0;
	place = NULL;
	due = false;
	look_at = 0;
	JSValue result = JS_UNDEFINED;
	if (!JS_IsUndefined(handler)) {
		result = call_handler();
		if (!rejections && JS_IsUndefined(result)) return QUERN_COMPLETE;
		if (!rejections && written(result)) return QUERN_COMPLETE;
	}
	bool threw = JS_IsException(result);
	JSValueConst arguments[] = {JS_NewBool(ctx, threw), threw ? JS_GetException(ctx) : result};
	JSValue status = JS_Call(ctx, end_task, JS_UNDEFINED, 2, arguments);
	return JS_IsException(status) ? give_up() : JS_VALUE_GET_INT(status);
}
