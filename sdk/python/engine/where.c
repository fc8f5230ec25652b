// quern_where: where the interpreter is. The host calls it when it has stopped the task at a limit, in the middle of anything. So
// it only reads, allocates nothing, and needs no valid heap.

#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_pystate.h>
#include <stdio.h>
#include <string.h>

enum { MOST_FRAMES = 16, MOST_NAME = 80 };

static char text[2048];
static size_t used;

// name copies a str, with ? for what is not ASCII.
static void name(char *to, PyObject *str) {
	Py_ssize_t size = 0, length = str && PyUnicode_Check(str) && PyUnicode_IS_READY(str) ? PyUnicode_GET_LENGTH(str) : 0;
	for (; size < length && size < MOST_NAME; size++) {
		Py_UCS4 c = PyUnicode_READ(PyUnicode_KIND(str), PyUnicode_DATA(str), size);
		to[size] = c >= ' ' && c <= '~' ? (char)c : '?';
	}
	to[size] = 0;
}

static int begins(const char *with, const char **file) {
	size_t size = strlen(with);
	if (strncmp(*file, with, size) != 0) return 0;
	*file += size;
	return 1;
}

// users reports whether a file is the user's, as quern._run does, and shortens its name.
static int users(const char **file) {
	if (begins("/lib/python311.zip/quern/", file) || begins("/lib/python311.zip/asyncio/", file) || begins("<frozen ", file)) return 0;
	if (!begins("/app/site-packages/", file) && !begins("/app/", file)) begins("/lib/python311.zip/", file);
	return 1;
}

static void more(int times) {
	if (times) used += (size_t)snprintf(text + used, sizeof text - used, "(%d more)\n", times);
}

// where returns the frames of the user's code, innermost first, each a line "FILE:LINE in FUNCTION".
__attribute__((export_name("quern_where"))) const char *where(void) {
	char file_name[MOST_NAME + 1], function[MOST_NAME + 1];
	const PyCodeObject *last = NULL;
	int last_line = 0, times = 0, frames = 0;
	PyThreadState *state = _PyRuntimeState_GetThreadState(&_PyRuntime);
	PyInterpreterState *interpreter = _PyRuntime.interpreters.main;
	if (!state && interpreter) state = interpreter->threads.head; // it waits, as in time.sleep, without the GIL
	used = 0;
	text[0] = 0;
	_PyInterpreterFrame *frame = state && state->cframe ? state->cframe->current_frame : NULL;
	for (; frame && frames < MOST_FRAMES && used < sizeof text - 3 * MOST_NAME; frame = frame->previous) {
		PyCodeObject *code = frame->f_code;
		if (!code || _PyFrame_IsIncomplete(frame)) continue;
		const char *file = file_name;
		name(file_name, code->co_filename);
		if (!users(&file)) continue;
		int line = PyCode_Addr2Line(code, _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT));
		if (code == last && line == last_line) { // recursion
			times++;
			continue;
		}
		more(times);
		name(function, code->co_name);
		used += (size_t)snprintf(text + used, sizeof text - used, "%s:%d in %s\n", file, line, function);
		last = code, last_line = line, times = 0;
		frames++;
	}
	if (!frame) more(times);
	return text;
}
