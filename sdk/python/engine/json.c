// JSON for task.json() and for what handlers return: the module json in C, for what is common. Whatever is rare or wrong is
// left to the module json, with its own results and errors. A function here says so by NULL or -1 without an exception.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "host.h"

#define MOST_DEPTH 200 // Python's recursion limit decides about more
#define MOST_DIGITS 18 // every number of 18 digits fits into an int64_t
#define MOST_BYTES (1u << 30) // of what is written
#define KEYS 128

// done is what the caller in Python gets.
static PyObject *done(PyObject *result) { return result || PyErr_Occurred() ? result : Py_NewRef(Py_NotImplemented); }

// ---- Reading

// reader reads the contents of a bytes object, behind which there is a NUL.
typedef struct {
	const unsigned char *at, *end;
	int depth;
	struct {
		const unsigned char *text;
		Py_ssize_t size;
		PyObject *key;
	} keys[KEYS]; // the latest names of members, since they repeat; by a hash
} reader;

static PyObject *read_value(reader *r);

// next returns the next character that is no blank.
static unsigned char next(reader *r) {
	while (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t') r->at++;
	return *r->at;
}

static int is_plain(unsigned char c) { return c >= ' ' && c != '"' && c != '\\'; }

// read_unit reads four hexadecimal digits; -1 if there are none.
static int read_unit(reader *r) {
	int unit = 0;
	for (int i = 0; i < 4; i++, r->at++) {
		int digit = Py_ISXDIGIT(*r->at) ? (*r->at <= '9' ? *r->at - '0' : (*r->at | 32) - 'a' + 10) : -1;
		if (digit < 0) return -1;
		unit = unit << 4 | digit;
	}
	return unit;
}

// read_escaped reads a character after "\u", or after the first half of a pair; -1 for half a pair.
static int read_escaped(reader *r) {
	int unit = read_unit(r);
	if (unit < 0xd800 || unit > 0xdfff) return unit;
	if (unit > 0xdbff || r->at[0] != '\\' || r->at[1] != 'u') return -1;
	r->at += 2;
	int low = read_unit(r);
	return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + ((unit & 0x3ff) << 10 | (low & 0x3ff));
}

static unsigned char *put_utf8(unsigned char *to, int c) {
	int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
	*to++ = (unsigned char)(more ? 0xff << (7 - more) | c >> 6 * more : c);
	while (more--) *to++ = (unsigned char)(0x80 | (c >> 6 * more & 0x3f));
	return to;
}

// unescape writes the rest of a string, which gets no longer, and returns its end.
static unsigned char *unescape(reader *r, unsigned char *to) {
	static const char names[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
	for (;;) {
		unsigned char c = *r->at++;
		if (c == '"') return to;
		if (c == '\\') {
			c = *r->at++;
			if (c == 'u') {
				int character = read_escaped(r);
				if (character < 0) return NULL;
				to = put_utf8(to, character);
				continue;
			}
			const char *name = c ? strchr(names, c) : NULL;
			if (!name) return NULL;
			c = (unsigned char)characters[name - names];
		} else if (c < ' ') {
			return NULL;
		}
		*to++ = c;
	}
}

static PyObject *decode(const unsigned char *text, Py_ssize_t size) {
	PyObject *value = PyUnicode_DecodeUTF8((const char *)text, size, NULL);
	if (!value && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) PyErr_Clear();
	return value;
}

// read_string reads a string after its first quote.
static PyObject *read_string(reader *r) {
	const unsigned char *from = r->at;
	unsigned char all = 0;
	while (is_plain(*r->at)) all |= *r->at++;
	Py_ssize_t size = r->at - from;
	if (*r->at == '"') {
		r->at++;
		if (all >= 0x80) return decode(from, size);
		PyObject *value = PyUnicode_New(size, 127);
		if (value) memcpy(PyUnicode_1BYTE_DATA(value), from, (size_t)size);
		return value;
	}
	if (*r->at != '\\') return NULL;
	unsigned char *text = PyMem_Malloc((size_t)(r->end - from));
	if (!text) return PyErr_NoMemory();
	memcpy(text, from, (size_t)size);
	unsigned char *end = unescape(r, text + size);
	PyObject *value = end ? decode(text, end - text) : NULL;
	PyMem_Free(text);
	return value;
}

// read_key reads a string after its first quote that may have come before.
static PyObject *read_key(reader *r) {
	const unsigned char *from = r->at, *end = from;
	unsigned hash = 0;
	while (is_plain(*end)) hash = hash * 31 + *end++;
	if (*end != '"') return read_string(r);
	typeof(r->keys[0]) *known = &r->keys[(hash ^ hash >> 8) % KEYS];
	if (known->key && known->size == end - from && memcmp(known->text, from, (size_t)known->size) == 0) {
		r->at = end + 1;
		return Py_NewRef(known->key);
	}
	PyObject *key = read_string(r);
	known->text = from, known->size = end - from;
	Py_XSETREF(known->key, Py_XNewRef(key));
	return key;
}

// skip_digits returns how many there were.
static Py_ssize_t skip_digits(reader *r) {
	const unsigned char *from = r->at;
	while (Py_ISDIGIT(*r->at)) r->at++;
	return r->at - from;
}

static PyObject *read_number(reader *r) {
	const unsigned char *from = r->at, *digits = r->at += *from == '-';
	Py_ssize_t size = skip_digits(r);
	if (size == 0 || size > 1 && *digits == '0') return NULL;
	int whole = 1;
	if (*r->at == '.') {
		whole = 0, r->at++;
		if (!skip_digits(r)) return NULL;
	}
	if (*r->at == 'e' || *r->at == 'E') {
		whole = 0, r->at++;
		if (*r->at == '+' || *r->at == '-') r->at++;
		if (!skip_digits(r)) return NULL;
	}
	if (!whole) {
		char *end;
		double number = PyOS_string_to_double((const char *)from, &end, NULL);
		if ((unsigned char *)end != r->at) return NULL;
		return PyFloat_FromDouble(number);
	}
	if (size > MOST_DIGITS) return NULL;
	long long number = 0;
	for (; digits < r->at; digits++) number = number * 10 + (*digits - '0');
	return PyLong_FromLongLong(*from == '-' ? -number : number);
}

static PyObject *read_word(reader *r, const char *word, PyObject *value) {
	size_t size = strlen(word);
	if (strncmp((const char *)r->at, word, size) != 0) return NULL;
	r->at += size;
	return Py_NewRef(value);
}

// read_member reads a member of an object into the dict; -1 if there is none.
static int read_member(reader *r, PyObject *dict) {
	if (next(r) != '"') return -1;
	r->at++;
	PyObject *key = read_key(r), *value = NULL;
	if (key && next(r) == ':') {
		r->at++;
		value = read_value(r);
	}
	int result = value ? PyDict_SetItem(dict, key, value) : -1;
	Py_XDECREF(key);
	Py_XDECREF(value);
	return result;
}

static int read_item(reader *r, PyObject *list) {
	PyObject *value = read_value(r);
	int result = value ? PyList_Append(list, value) : -1;
	Py_XDECREF(value);
	return result;
}

// read_all reads what an object or array has up to its last bracket. It takes the container's reference, and returns it.
static PyObject *read_all(reader *r, PyObject *container, unsigned char last, int (*read)(reader *, PyObject *)) {
	if (!container) return NULL;
	r->at++;
	int result = ++r->depth > MOST_DEPTH ? -1 : 0;
	if (result == 0 && next(r) != last) {
		while ((result = read(r, container)) == 0 && next(r) == ',') r->at++;
	}
	r->depth--;
	if (result == 0 && next(r) == last) return r->at++, container;
	Py_DECREF(container);
	return NULL;
}

static PyObject *read_value(reader *r) {
	switch (next(r)) {
	case '{': return read_all(r, PyDict_New(), '}', read_member);
	case '[': return read_all(r, PyList_New(0), ']', read_item);
	case '"': return r->at++, read_string(r);
	case 't': return read_word(r, "true", Py_True);
	case 'f': return read_word(r, "false", Py_False);
	case 'n': return read_word(r, "null", Py_None);
	default: return read_number(r);
	}
}

PyObject *read_json(PyObject *self, PyObject *bytes) {
	if (!PyBytes_CheckExact(bytes)) return done(NULL);
	reader r = {.at = (unsigned char *)PyBytes_AS_STRING(bytes)};
	r.end = r.at + PyBytes_GET_SIZE(bytes);
	PyObject *value = read_value(&r);
	if (value && (next(&r), r.at != r.end)) Py_CLEAR(value);
	for (int i = 0; i < KEYS; i++) Py_XDECREF(r.keys[i].key);
	return done(value);
}

// ---- Writing

typedef struct {
	char *text;
	size_t size, room;
	int depth;
} writer;

static int write_value(writer *w, PyObject *value);

// more makes room, and returns where it begins.
static char *more(writer *w, size_t size) {
	if (size > MOST_BYTES || w->size + size > MOST_BYTES) return NULL;
	if (w->size + size > w->room) {
		size_t room = w->size + size + (w->size < 1 << 20 ? w->size + 256 : w->size / 2);
		char *text = PyMem_Realloc(w->text, room);
		if (!text) return PyErr_NoMemory(), NULL;
		w->text = text, w->room = room;
	}
	return w->text + w->size;
}

static int write_bytes(writer *w, const char *text, size_t size) {
	char *to = more(w, size);
	if (!to) return -1;
	memcpy(to, text, size);
	w->size += size;
	return 0;
}

static int write_string(writer *w, PyObject *value) {
	static const char digits[] = "0123456789abcdef", names[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
	Py_ssize_t size;
	const char *text = PyUnicode_AsUTF8AndSize(value, &size);
	if (!text) {
		if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) PyErr_Clear(); // half a surrogate pair
		return -1;
	}
	if ((size_t)size > MOST_BYTES / 6) return -1;
	size_t escapes = 0;
	for (Py_ssize_t i = 0; i < size; i++) escapes += !is_plain((unsigned char)text[i]);
	char *to = more(w, (size_t)size + 5 * escapes + 2);
	if (!to) return -1;
	*to++ = '"';
	if (!escapes) {
		memcpy(to, text, (size_t)size);
		to += size;
	}
	for (Py_ssize_t i = 0; escapes && i < size; i++) {
		unsigned char c = (unsigned char)text[i];
		if (is_plain(c)) {
			*to++ = (char)c;
			continue;
		}
		const char *name = c ? strchr(names, c) : NULL;
		*to++ = '\\';
		*to++ = name ? letters[name - names] : 'u';
		if (!name) *to++ = '0', *to++ = '0', *to++ = digits[c >> 4], *to++ = digits[c & 15];
	}
	*to++ = '"';
	w->size = (size_t)(to - w->text);
	return 0;
}

static int write_whole(writer *w, PyObject *value) {
	int large;
	long long number = PyLong_AsLongLongAndOverflow(value, &large);
	if (large) return -1;
	char text[24], *at = text + sizeof text;
	unsigned long long left = number < 0 ? -(unsigned long long)number : (unsigned long long)number;
	do *--at = (char)('0' + left % 10);
	while (left /= 10);
	if (number < 0) *--at = '-';
	return write_bytes(w, at, (size_t)(text + sizeof text - at));
}

static int write_float(writer *w, PyObject *value) {
	double number = PyFloat_AS_DOUBLE(value);
	if (!Py_IS_FINITE(number)) return -1;
	char *text = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
	if (!text) return -1;
	int result = write_bytes(w, text, strlen(text));
	PyMem_Free(text);
	return result;
}

static int write_dict(writer *w, PyObject *dict) {
	PyObject *key, *value;
	Py_ssize_t at = 0;
	for (const char *before = "{"; PyDict_Next(dict, &at, &key, &value); before = ",") {
		if (!PyUnicode_CheckExact(key) || write_bytes(w, before, 1) < 0 || write_string(w, key) < 0 ||
			write_bytes(w, ":", 1) < 0 || write_value(w, value) < 0)
			return -1;
	}
	return at == 0 ? write_bytes(w, "{}", 2) : write_bytes(w, "}", 1);
}

// write_sequence writes a list or tuple.
static int write_sequence(writer *w, PyObject *sequence) {
	Py_ssize_t size = PySequence_Fast_GET_SIZE(sequence);
	if (write_bytes(w, "[", 1) < 0) return -1;
	for (Py_ssize_t i = 0; i < size; i++) {
		if (i > 0 && write_bytes(w, ",", 1) < 0 || write_value(w, PySequence_Fast_GET_ITEM(sequence, i)) < 0) return -1;
	}
	return write_bytes(w, "]", 1);
}

static int write_nested(writer *w, PyObject *container, int (*write)(writer *, PyObject *)) {
	int result = ++w->depth > MOST_DEPTH ? -1 : write(w, container);
	w->depth--;
	return result;
}

// Subclasses may have methods of their own.
static int write_value(writer *w, PyObject *value) {
	if (PyUnicode_CheckExact(value)) return write_string(w, value);
	if (PyLong_CheckExact(value)) return write_whole(w, value);
	if (PyDict_CheckExact(value)) return write_nested(w, value, write_dict);
	if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) return write_nested(w, value, write_sequence);
	if (PyFloat_CheckExact(value)) return write_float(w, value);
	if (value == Py_None) return write_bytes(w, "null", 4);
	if (value == Py_True) return write_bytes(w, "true", 4);
	if (value == Py_False) return write_bytes(w, "false", 5);
	return -1;
}

PyObject *write_json(PyObject *self, PyObject *value) {
	writer w = {0};
	PyObject *bytes = write_value(&w, value) < 0 ? NULL : PyBytes_FromStringAndSize(w.text, (Py_ssize_t)w.size);
	PyMem_Free(w.text);
	return done(bytes);
}
