// A handler of Quern that runs Python. _initialize starts CPython, imports what belongs to the engine, and then the user's
// handler; the host takes a snapshot of that. quern_handle calls the handler.
//
// All that is done before the user's code is imported is the same in every plugin, byte for byte: the hash seed is fixed, no
// clock and no random number is read into memory, and the user's objects lie in pages of their own. So plugins can share
// those pages.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "quern.h"

extern unsigned int PyRandom_Task;      // patches/random-per-task.patch, which calls PyRandom_InTask
extern void PyObject_SealArenas(void); // patches/sealed-arenas.patch

#define LIBRARY L"/lib/python311.zip"

static PyObject *run; // quern._run.run, once the interpreter has started

int PyRandom_InTask(void) { return PyRandom_Task > 1 && quern_task_text(QUERN_TASK_ID) != QUERN_ESTATE; }

// why is what a start that failed before Python could say it ends with.
static const char *why = "the Python interpreter did not start";

static void no_start(PyStatus status) { why = status.err_msg ? status.err_msg : "the Python interpreter did not start"; }

// hash_seed is 0, the same for every plugin, unless the manifest sets PYTHONHASHSEED. It returns -1 if that is not a seed: a
// random one would be in the snapshot, and no more random than this one.
static int hash_seed(unsigned long *seed) {
	static char text[200];
	const char *set = getenv("PYTHONHASHSEED");
	char *end;
	*seed = 0;
	if (!set) return 0;
	unsigned long long number = strtoull(set, &end, 10);
	if (!isdigit((unsigned char)*set) || *end || number > UINT32_MAX) {
		snprintf(text, sizeof text, "the plugin did not start: PYTHONHASHSEED is \"%.40s\": expected a number from 0 to 4294967295", set);
		why = text;
		return -1;
	}
	*seed = (unsigned long)number;
	return 0;
}

static int start_interpreter(void) {
	unsigned long seed;
	if (hash_seed(&seed) < 0) return -1;
	PyPreConfig before;
	PyPreConfig_InitIsolatedConfig(&before);
	before.utf8_mode = 1;
	PyStatus status = Py_PreInitialize(&before);
	if (PyStatus_Exception(status)) return no_start(status), -1;

	PyConfig config;
	PyConfig_InitIsolatedConfig(&config);
	config.site_import = 0;
	config.install_signal_handlers = 0;
	config.write_bytecode = 0;
	config.use_hash_seed = 1;
	config.hash_seed = seed;
	config.module_search_paths_set = 1;
	PyWideStringList_Append(&config.module_search_paths, L"/app");
	PyWideStringList_Append(&config.module_search_paths, LIBRARY);
	PyWideStringList_Append(&config.module_search_paths, L"/app/site-packages");
	const struct {
		wchar_t **to;
		const wchar_t *text;
	} texts[] = {{&config.program_name, L"python"}, {&config.executable, L""}, {&config.stdlib_dir, LIBRARY}, {&config.prefix, L"/lib"},
		{&config.base_prefix, L"/lib"}, {&config.exec_prefix, L"/lib"}, {&config.base_exec_prefix, L"/lib"}, {&config.platlibdir, L"lib"}};
	for (size_t i = 0; i < Py_ARRAY_LENGTH(texts); i++) PyConfig_SetString(&config, texts[i].to, texts[i].text);
	status = Py_InitializeFromConfig(&config);
	PyConfig_Clear(&config);
	if (PyStatus_Exception(status)) return no_start(status), -1;
	return 0;
}

// engine_fault keeps what the SDK's own modules raised as the task's error. The user's exceptions do not get here.
static void engine_fault(void) {
	PyObject *type, *value, *trace;
	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	PyObject *text = value ? PyUnicode_FromFormat("a fault of the engine or its library: %R", value) : NULL;
	const char *said = text ? PyUnicode_AsUTF8(text) : NULL; // the text is kept
	why = said ? said : "a fault of the engine or its library";
	PyErr_Clear();
}

// call calls a function of the module quern._run.
static int call(PyObject *module, const char *name) {
	PyObject *result = PyObject_CallMethod(module, name, NULL);
	if (!result) return engine_fault(), -1;
	Py_DECREF(result);
	return 0;
}

__attribute__((constructor)) static void start(void) {
	PyImport_AppendInittab("_quern", quern_module);
	if (start_interpreter() < 0) return;
	PyObject *module = PyImport_ImportModule("quern._run");
	if (!module) {
		engine_fault();
		return;
	}
	if (call(module, "prepare") < 0) return;
	PyRandom_Task = 1;
	PyObject_SealArenas();
	if (call(module, "load") < 0) return;
	run = PyObject_GetAttrString(module, "run");
	Py_DECREF(module);
}

QUERN_HANDLER int32_t handle(void) {
	if (run) {
		PyRandom_Task++;
		PyObject *status = PyObject_CallNoArgs(run);
		if (status) return (int32_t)PyLong_AsLong(status);
		engine_fault();
	}
	quern_error_set(why, strlen(why));
	return 1;
}
