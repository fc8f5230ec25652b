// The module _quern: quern_v1 for Python. Each function is one of sdk/ABI.md, with bytes and str for pointers and lengths; a
// negative result is raised as one of the exceptions that set_errors was given. The package quern is what handlers use.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "host.h"
#include "quern.h"

#define ERRORS 12

extern unsigned int PyRandom_Task; // patches/random-per-task.patch

static PyObject *errors[ERRORS]; // the exceptions, by the negated result

static PyObject *slot_text(int32_t size);

// raise_result raises the exception for a negative result. Of a refusal the host says why, which becomes the exception's text.
static PyObject *raise_result(int32_t result) {
	PyObject *class = result > -ERRORS ? errors[-result] : NULL;
	if (!class) return PyErr_Format(PyExc_RuntimeError, "the host answered %d, which this SDK does not know", (int)result);
	PyObject *error = PyObject_CallNoArgs(class);
	if (!error) return NULL;
	if (result == QUERN_EINVAL || result == QUERN_EDENIED || result == QUERN_EQUOTA || result == QUERN_EAGAIN ||
		result == QUERN_ELIMIT) {
		int32_t size = quern_task_text(QUERN_TASK_REFUSAL);
		PyObject *why = size > 0 ? slot_text(size) : NULL;
		if (!why || PyObject_SetAttrString(error, "about", why) < 0) PyErr_Clear();
		Py_XDECREF(why);
	}
	PyErr_SetObject(class, error);
	Py_DECREF(error);
	return NULL;
}

static PyObject *none(int32_t result) {
	if (result < 0) return raise_result(result);
	Py_RETURN_NONE;
}

static PyObject *number(int32_t result, const int64_t *value) { return result < 0 ? raise_result(result) : PyLong_FromLongLong(*value); }

// slot_bytes reads size bytes of the slot.
static PyObject *slot_bytes(int32_t size) {
	if (size < 0) return raise_result(size);
	PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
	if (bytes) quern_result_read(0, PyBytes_AS_STRING(bytes), (uint32_t)size);
	return bytes;
}

// slot_text reads a short text of the slot without an object in between.
static PyObject *slot_text(int32_t size) {
	char near[512];
	if (size < 0) return raise_result(size);
	if ((uint32_t)size <= sizeof near) {
		quern_result_read(0, near, (uint32_t)size);
		return PyUnicode_DecodeUTF8(near, size, "replace");
	}
	PyObject *bytes = slot_bytes(size);
	if (!bytes) return NULL;
	PyObject *text = PyUnicode_DecodeUTF8(PyBytes_AS_STRING(bytes), size, "replace");
	Py_DECREF(bytes);
	return text;
}

static PyObject *set_errors(PyObject *self, PyObject *classes) {
	if (!PyTuple_Check(classes) || PyTuple_GET_SIZE(classes) != ERRORS - 1) {
		PyErr_SetString(PyExc_TypeError, "expected a tuple of the 11 errors");
		return NULL;
	}
	for (int i = 1; i < ERRORS; i++) Py_XSETREF(errors[i], Py_NewRef(PyTuple_GET_ITEM(classes, i - 1)));
	Py_RETURN_NONE;
}

static PyObject *input(PyObject *self, PyObject *unused) {
	int32_t size = quern_input_size();
	if (size < 0) return raise_result(size);
	PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
	if (bytes) quern_input_read(0, PyBytes_AS_STRING(bytes), (uint32_t)size);
	return bytes;
}

// Without a task, as in the warm call, its texts are empty and its numbers 0.
static PyObject *task_text(PyObject *self, PyObject *field) {
	int32_t size = quern_task_text(PyLong_AsLong(field));
	return size == QUERN_ESTATE ? PyUnicode_New(0, 0) : slot_text(size);
}

static PyObject *task_number(PyObject *self, PyObject *field) {
	int64_t value = 0;
	int32_t result = quern_task_number(PyLong_AsLong(field), &value);
	return number(result == QUERN_ESTATE ? 0 : result, &value);
}

// How many calls of the handler there have been since the start, with this one; from 1, which is the start.
static PyObject *call(PyObject *self, PyObject *unused) { return PyLong_FromUnsignedLong(PyRandom_Task); }

static PyObject *cancelled(PyObject *self, PyObject *unused) { return PyBool_FromLong(quern_cancelled() == 1); }

static PyObject *log_line(PyObject *self, PyObject *args) {
	int level;
	const char *text, *fields;
	Py_ssize_t size, fields_size;
	if (!PyArg_ParseTuple(args, "is#s#", &level, &text, &size, &fields, &fields_size)) return NULL;
	return none(quern_log(level, text, (uint32_t)size, fields, (uint32_t)fields_size));
}

static PyObject *progress(PyObject *self, PyObject *args) {
	double fraction;
	const char *message;
	Py_ssize_t size;
	if (!PyArg_ParseTuple(args, "ds#", &fraction, &message, &size)) return NULL;
	return none(quern_progress(fraction, message, (uint32_t)size));
}

static PyObject *checkpoint_save(PyObject *self, PyObject *value) {
	Py_buffer view;
	if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0) return NULL;
	int32_t result = quern_checkpoint_save(view.buf, (uint32_t)view.len);
	PyBuffer_Release(&view);
	return none(result);
}

static PyObject *checkpoint_load(PyObject *self, PyObject *unused) { return slot_bytes(quern_checkpoint_load()); }

static PyObject *config_get(PyObject *self, PyObject *args) {
	const char *name;
	Py_ssize_t size;
	return PyArg_ParseTuple(args, "s#", &name, &size) ? slot_text(quern_config_get(name, (uint32_t)size)) : NULL;
}

static PyObject *secret_get(PyObject *self, PyObject *args) {
	const char *name;
	Py_ssize_t size;
	return PyArg_ParseTuple(args, "s#", &name, &size) ? slot_bytes(quern_secret_get(name, (uint32_t)size)) : NULL;
}

static PyObject *kv_get(PyObject *self, PyObject *args) {
	const char *bucket, *key;
	Py_ssize_t bucket_size, key_size;
	if (!PyArg_ParseTuple(args, "s#s#", &bucket, &bucket_size, &key, &key_size)) return NULL;
	return slot_bytes(quern_kv_get(bucket, (uint32_t)bucket_size, key, (uint32_t)key_size));
}

static PyObject *kv_set(PyObject *self, PyObject *args) {
	const char *bucket, *key;
	Py_ssize_t bucket_size, key_size;
	Py_buffer value;
	long long ttl;
	if (!PyArg_ParseTuple(args, "s#s#y*L", &bucket, &bucket_size, &key, &key_size, &value, &ttl)) return NULL;
	int32_t result =
		quern_kv_set(bucket, (uint32_t)bucket_size, key, (uint32_t)key_size, value.buf, (uint32_t)value.len, ttl);
	PyBuffer_Release(&value);
	return none(result);
}

static PyObject *kv_delete(PyObject *self, PyObject *args) {
	const char *bucket, *key;
	Py_ssize_t bucket_size, key_size;
	if (!PyArg_ParseTuple(args, "s#s#", &bucket, &bucket_size, &key, &key_size)) return NULL;
	int32_t result = quern_kv_delete(bucket, (uint32_t)bucket_size, key, (uint32_t)key_size);
	return result < 0 ? raise_result(result) : PyBool_FromLong(result);
}

static PyObject *kv_increment(PyObject *self, PyObject *args) {
	const char *bucket, *key;
	Py_ssize_t bucket_size, key_size;
	long long delta;
	int64_t sum = 0;
	if (!PyArg_ParseTuple(args, "s#s#L", &bucket, &bucket_size, &key, &key_size, &delta)) return NULL;
	return number(quern_kv_increment(bucket, (uint32_t)bucket_size, key, (uint32_t)key_size, delta, &sum), &sum);
}

// kv_swap returns whether the value was set, and the present value if it was not: None if there is none.
static PyObject *kv_swap(PyObject *self, PyObject *args) {
	const char *bucket, *key;
	Py_ssize_t bucket_size, key_size;
	Py_buffer old = {0}, value;
	PyObject *expected;
	long long ttl;
	if (!PyArg_ParseTuple(args, "s#s#Oy*L", &bucket, &bucket_size, &key, &key_size, &expected, &value, &ttl)) return NULL;
	if (expected != Py_None && PyObject_GetBuffer(expected, &old, PyBUF_SIMPLE) < 0) {
		PyBuffer_Release(&value);
		return NULL;
	}
	int32_t result = quern_kv_swap(bucket, (uint32_t)bucket_size, key, (uint32_t)key_size, old.buf,
		expected == Py_None ? QUERN_ABSENT : (uint32_t)old.len, value.buf, (uint32_t)value.len, ttl);
	PyBuffer_Release(&value);
	if (expected != Py_None) PyBuffer_Release(&old);
	switch (result) {
	case QUERN_ECONFLICT: return Py_BuildValue("ON", Py_False, slot_bytes(quern_result_size()));
	case QUERN_ENOTFOUND: return Py_BuildValue("OO", Py_False, Py_None);
	default: return result < 0 ? raise_result(result) : Py_BuildValue("OO", Py_True, Py_None);
	}
}

static PyObject *kv_list(PyObject *self, PyObject *args) {
	const char *bucket, *prefix, *after;
	Py_ssize_t bucket_size, prefix_size, after_size;
	int limit;
	if (!PyArg_ParseTuple(args, "s#s#s#i", &bucket, &bucket_size, &prefix, &prefix_size, &after, &after_size, &limit)) return NULL;
	PyObject *bytes = slot_bytes(quern_kv_list(
		bucket, (uint32_t)bucket_size, prefix, (uint32_t)prefix_size, after, (uint32_t)after_size, limit));
	PyObject *keys = bytes ? PyList_New(0) : NULL;
	if (!keys) {
		Py_XDECREF(bytes);
		return NULL;
	}
	const char *at = PyBytes_AS_STRING(bytes), *end = at + PyBytes_GET_SIZE(bytes);
	while (at < end) {
		uint32_t size;
		memcpy(&size, at, sizeof size);
		PyObject *key = PyUnicode_DecodeUTF8(at + sizeof size, size, "replace");
		if (!key || PyList_Append(keys, key) < 0) {
			Py_XDECREF(key);
			Py_CLEAR(keys);
			break;
		}
		Py_DECREF(key);
		at += sizeof size + size;
	}
	Py_DECREF(bytes);
	return keys;
}

// http returns the answer's head and body.
static PyObject *http(PyObject *self, PyObject *args) {
	const char *head;
	Py_ssize_t head_size;
	Py_buffer body;
	if (!PyArg_ParseTuple(args, "s#y*", &head, &head_size, &body)) return NULL;
	int32_t size = quern_http(head, (uint32_t)head_size, body.buf, (uint32_t)body.len);
	PyBuffer_Release(&body);
	if (size < 0) return raise_result(size);
	uint32_t head_length = 0;
	quern_result_read(0, &head_length, sizeof head_length);
	PyObject *answer_head = PyBytes_FromStringAndSize(NULL, head_length);
	PyObject *answer_body = PyBytes_FromStringAndSize(NULL, size - (int32_t)head_length - 4);
	if (answer_head && answer_body) {
		quern_result_read(4, PyBytes_AS_STRING(answer_head), head_length);
		quern_result_read(4 + head_length, PyBytes_AS_STRING(answer_body), (uint32_t)PyBytes_GET_SIZE(answer_body));
		return Py_BuildValue("NN", answer_head, answer_body);
	}
	Py_XDECREF(answer_head);
	Py_XDECREF(answer_body);
	return NULL;
}

static PyObject *text_of(quern_view view) { return PyUnicode_DecodeUTF8(view.data, view.size, "replace"); }

// put sets a key of a dictionary, and takes over the value; 0, or -1 with an exception.
static int put(PyObject *dictionary, PyObject *key, PyObject *value) {
	int failed = !key || !value || PyDict_SetItem(dictionary, key, value) < 0;
	Py_XDECREF(value);
	return failed ? -1 : 0;
}

// refusal is the fields of an error of the database, by their letters.
static PyObject *refusal(quern_view fields) {
	PyObject *all = PyDict_New();
	int32_t letter;
	quern_view text;
	while (all && quern_next_value(&fields, &letter, &text)) {
		PyObject *key = PyUnicode_FromFormat("%c", (int)letter);
		if (put(all, key, text_of(text)) < 0) Py_CLEAR(all);
		Py_XDECREF(key);
	}
	return all;
}

// next_row takes the next row of an answer, by the names of its columns: each value is None, a str, or bytes.
static PyObject *next_row(PyObject *names, quern_view *values) {
	PyObject *row = PyDict_New();
	for (Py_ssize_t i = 0; row && i < PyList_GET_SIZE(names); i++) {
		int32_t kind = QUERN_SQL_NULL;
		quern_view value = {0};
		quern_next_value(values, &kind, &value);
		PyObject *made = kind == QUERN_SQL_NULL ? Py_NewRef(Py_None)
			: kind == QUERN_SQL_TEXT ? text_of(value) : PyBytes_FromStringAndSize(value.data, value.size);
		if (put(row, PyList_GET_ITEM(names, i), made) < 0) Py_CLEAR(row);
	}
	return row;
}

// answer_of reads the answer of a database: how many rows are affected, names and OIDs of the columns, and rows; or the fields of
// an error.
static PyObject *answer_of(int32_t size) {
	PyObject *bytes = slot_bytes(size);
	if (!bytes) return NULL;
	quern_rows answer;
	if (quern_split_rows(PyBytes_AS_STRING(bytes), (uint32_t)size, &answer) < 0) {
		PyObject *fields = refusal(answer.values);
		Py_DECREF(bytes);
		return fields;
	}
	PyObject *names = PyList_New(0), *oids = PyList_New(0), *rows = PyList_New(0);
	uint32_t oid;
	quern_view name;
	int failed = !names || !oids || !rows;
	while (!failed && quern_next_column(&answer.names, &oid, &name)) {
		PyObject *text = text_of(name), *number = PyLong_FromUnsignedLong(oid);
		failed = !text || !number || PyList_Append(names, text) < 0 || PyList_Append(oids, number) < 0;
		Py_XDECREF(text);
		Py_XDECREF(number);
	}
	for (int32_t i = 0; !failed && i < answer.rows; i++) {
		PyObject *row = next_row(names, &answer.values);
		failed = !row || PyList_Append(rows, row) < 0;
		Py_XDECREF(row);
	}
	Py_DECREF(bytes);
	if (!failed) return Py_BuildValue("LNNN", (long long)answer.affected, names, oids, rows);
	Py_XDECREF(names);
	Py_XDECREF(oids);
	Py_XDECREF(rows);
	return NULL;
}

static PyObject *sql(PyObject *self, PyObject *args) {
	const char *database, *statement;
	Py_ssize_t database_size, statement_size;
	Py_buffer values;
	if (!PyArg_ParseTuple(args, "s#s#y*", &database, &database_size, &statement, &statement_size, &values)) return NULL;
	int32_t size = quern_sql(
		database, (uint32_t)database_size, statement, (uint32_t)statement_size, values.buf, (uint32_t)values.len);
	PyBuffer_Release(&values);
	return answer_of(size);
}

static PyObject *sql_commit(PyObject *self, PyObject *args) {
	const char *database, *step;
	Py_ssize_t database_size, step_size;
	Py_buffer value;
	if (!PyArg_ParseTuple(args, "s#s#y*", &database, &database_size, &step, &step_size, &value)) return NULL;
	int32_t size = quern_sql_commit(
		database, (uint32_t)database_size, step, (uint32_t)step_size, value.buf, (uint32_t)value.len);
	PyBuffer_Release(&value);
	return answer_of(size);
}

static PyObject *sql_rollback(PyObject *self, PyObject *args) {
	const char *database;
	Py_ssize_t size;
	return PyArg_ParseTuple(args, "s#", &database, &size) ? none(quern_sql_rollback(database, (uint32_t)size)) : NULL;
}

static PyObject *sql_step(PyObject *self, PyObject *args) {
	const char *database, *step;
	Py_ssize_t database_size, step_size;
	if (!PyArg_ParseTuple(args, "s#s#", &database, &database_size, &step, &step_size)) return NULL;
	return slot_bytes(quern_sql_step(database, (uint32_t)database_size, step, (uint32_t)step_size));
}

static PyObject *enqueue(PyObject *self, PyObject *args) {
	const char *queue, *options;
	Py_ssize_t queue_size, options_size;
	Py_buffer body;
	if (!PyArg_ParseTuple(args, "s#y*s#", &queue, &queue_size, &body, &options, &options_size)) return NULL;
	int32_t result =
		quern_enqueue(queue, (uint32_t)queue_size, body.buf, (uint32_t)body.len, options, (uint32_t)options_size);
	PyBuffer_Release(&body);
	return slot_text(result);
}

static PyObject *dependency_result(PyObject *self, PyObject *args) {
	const char *id;
	Py_ssize_t size;
	return PyArg_ParseTuple(args, "s#", &id, &size) ? slot_bytes(quern_dependency_result(id, (uint32_t)size)) : NULL;
}

static PyObject *output_write(PyObject *self, PyObject *value) {
	Py_buffer view;
	if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0) return NULL;
	int32_t result = quern_output_write(view.buf, (uint32_t)view.len);
	PyBuffer_Release(&view);
	return none(result);
}

static PyObject *error_set(PyObject *self, PyObject *args) {
	const char *text;
	Py_ssize_t size;
	return PyArg_ParseTuple(args, "s#", &text, &size) ? none(quern_error_set(text, (uint32_t)size)) : NULL;
}

static PyObject *retry_after(PyObject *self, PyObject *args) {
	long long milliseconds;
	return PyArg_ParseTuple(args, "L", &milliseconds) ? none(quern_retry_after(milliseconds)) : NULL;
}

static PyMethodDef methods[] = {
	{"set_errors", set_errors, METH_O},
	{"input", input, METH_NOARGS},
	{"task_text", task_text, METH_O},
	{"task_number", task_number, METH_O},
	{"call", call, METH_NOARGS},
	{"cancelled", cancelled, METH_NOARGS},
	{"log", log_line, METH_VARARGS},
	{"progress", progress, METH_VARARGS},
	{"checkpoint_save", checkpoint_save, METH_O},
	{"checkpoint_load", checkpoint_load, METH_NOARGS},
	{"config_get", config_get, METH_VARARGS},
	{"secret_get", secret_get, METH_VARARGS},
	{"kv_get", kv_get, METH_VARARGS},
	{"kv_set", kv_set, METH_VARARGS},
	{"kv_delete", kv_delete, METH_VARARGS},
	{"kv_increment", kv_increment, METH_VARARGS},
	{"kv_swap", kv_swap, METH_VARARGS},
	{"kv_list", kv_list, METH_VARARGS},
	{"http", http, METH_VARARGS},
	{"sql", sql, METH_VARARGS},
	{"sql_commit", sql_commit, METH_VARARGS},
	{"sql_rollback", sql_rollback, METH_VARARGS},
	{"sql_step", sql_step, METH_VARARGS},
	{"enqueue", enqueue, METH_VARARGS},
	{"dependency_result", dependency_result, METH_VARARGS},
	{"output_write", output_write, METH_O},
	{"error_set", error_set, METH_VARARGS},
	{"retry_after", retry_after, METH_VARARGS},
	{"read_json", read_json, METH_O},
	{"write_json", write_json, METH_O},
	{0},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_quern", "quern_v1", -1, methods};

PyObject *quern_module(void) { return PyModule_Create(&definition); }
