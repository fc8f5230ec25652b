// Parses its input, JSON, into a tree; adds up what an order costs and weighs; and writes the order with the sums.
// See JSON in handlers.go. What is not JSON ends it with 65. Pairs of surrogates are not put together.
#include "quern.h"
#include <stdlib.h>
#include <string.h>

static char *input(void) {
	int32_t n = quern_input_size();
	char *p = malloc(n + 1);
	p[quern_input_read(0, p, n)] = 0;
	return p;
}

static void output(const char *p, size_t n) { quern_output_write(p, n); }

// ---- the same for all hosts
#include <stdio.h>

enum kind { EMPTY, BOOLEAN, NUMBER, STRING, ARRAY, OBJECT };

struct value {
	enum kind kind;
	double number;
	char *text, *name; // name: in an object
	struct value *first, *next;
};

static const char *at; // the rest of the input
static int wrong;
static struct value *parse(void);

static char next(void) {
	while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') at++;
	return *at;
}

static int take(char c) { return next() == c ? (at++, 1) : 0; }

static void expect(const char *word) {
	size_t n = strlen(word);
	if (strncmp(at, word, n)) wrong = 1;
	else at += n;
}

static char *put(char *to, unsigned c) { // as UTF-8
	if (c < 0x80) return *to++ = c, to;
	if (c < 0x800) *to++ = 0xc0 | c >> 6;
	else *to++ = 0xe0 | c >> 12, *to++ = 0x80 | (c >> 6 & 0x3f);
	return *to++ = 0x80 | (c & 0x3f), to;
}

static char *escape(char *to) {
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	char digits[5] = {0};
	const char *found = strchr(names, *at);
	if (*at && found) return *to++ = values[found - names], at++, to;
	expect("u");
	if (wrong) return to;
	strncpy(digits, at, 4);
	at += strlen(digits);
	return put(to, strtoul(digits, NULL, 16));
}

static char *string(void) {
	expect("\"");
	size_t size = 0;
	while (at[size] && at[size] != '"') size += at[size] == '\\' && at[size + 1] ? 2 : 1;
	char *text = malloc(size + 1), *to = text;
	while (*at && *at != '"') {
		if (*at != '\\') *to++ = *at++;
		else if (at++, to = escape(to), wrong) break;
	}
	*to = 0;
	expect("\"");
	return text;
}

static void items(struct value *v, char end) {
	struct value **last = &v->first;
	at++;
	if (take(end)) return;
	do {
		char *name = NULL;
		if (v->kind == OBJECT) {
			next();
			name = string();
			if (!take(':')) wrong = 1;
		}
		*last = parse();
		(*last)->name = name;
		last = &(*last)->next;
	} while (!wrong && take(','));
	if (!take(end)) wrong = 1;
}

static struct value *parse(void) {
	struct value *v = calloc(1, sizeof *v);
	char *end;
	switch (next()) {
	case '{': v->kind = OBJECT, items(v, '}'); break;
	case '[': v->kind = ARRAY, items(v, ']'); break;
	case '"': v->kind = STRING, v->text = string(); break;
	case 't': v->kind = BOOLEAN, v->number = 1, expect("true"); break;
	case 'f': v->kind = BOOLEAN, expect("false"); break;
	case 'n': expect("null"); break;
	default:
		v->kind = NUMBER, v->number = strtod(at, &end);
		if (end == at) wrong = 1;
		at = end;
	}
	return v;
}

static char *written;
static size_t length, capacity;

static void add(const char *p, size_t n) {
	if (length + n > capacity) written = realloc(written, capacity = 2 * capacity + n);
	memcpy(written + length, p, n);
	length += n;
}

static void add_string(const char *p) {
	char code[8];
	add("\"", 1);
	for (; *p; p++) {
		if (*p == '"' || *p == '\\') add("\\", 1), add(p, 1);
		else if (*p == '\n') add("\\n", 2);
		else if ((unsigned char)*p < ' ') add(code, snprintf(code, sizeof code, "\\u%04x", *p));
		else add(p, 1);
	}
	add("\"", 1);
}

static void add_number(double number) {
	char text[32];
	if (number == (double)(long long)number) add(text, snprintf(text, sizeof text, "%lld", (long long)number));
	else add(text, snprintf(text, sizeof text, "%.17g", number));
}

static void write_value(const struct value *v) {
	switch (v->kind) {
	case EMPTY: add("null", 4); break;
	case BOOLEAN: v->number ? add("true", 4) : add("false", 5); break;
	case NUMBER: add_number(v->number); break;
	case STRING: add_string(v->text); break;
	default:
		add(v->kind == OBJECT ? "{" : "[", 1);
		for (const struct value *i = v->first; i; i = i->next) {
			if (i != v->first) add(",", 1);
			if (i->name) add_string(i->name), add(":", 1);
			write_value(i);
		}
		add(v->kind == OBJECT ? "}" : "]", 1);
	}
}

static void drop(struct value *v) {
	while (v) {
		struct value *next = v->next;
		drop(v->first);
		free(v->text), free(v->name), free(v);
		v = next;
	}
}

static struct value *member(struct value *v, const char *name) {
	static struct value nothing;
	for (v = v->first; v; v = v->next)
		if (v->name && !strcmp(v->name, name)) return v;
	return &nothing;
}

static void reckon(struct value *order) {
	double total = 0, weight = 0;
	for (struct value *line = member(order, "lines")->first; line; line = line->next) {
		double quantity = member(line, "quantity")->number;
		total += quantity * member(line, "price")->number;
		for (struct value *w = member(line, "weights")->first; w; w = w->next) weight += quantity * w->number;
	}
	member(order, "total")->number = total;
	member(order, "weight")->number = weight;
}

// What one call leaves is no matter to the next, so that an instance may be used again.
__attribute__((export_name("quern_handle"))) int32_t handle(void) {
	char *text = input();
	at = text, wrong = 0, length = 0;
	struct value *order = parse();
	if (next()) wrong = 1;
	if (!wrong) {
		reckon(order);
		write_value(order);
		output(written, length);
	}
	drop(order);
	free(text);
	return wrong ? 65 : 0;
}
