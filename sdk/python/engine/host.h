#ifndef HOST_H
#define HOST_H

#include <Python.h>

// quern_module makes the module _quern.
PyObject *quern_module(void);

// read_json parses bytes, and write_json writes a value as compact JSON in UTF-8. They return NotImplemented for what the module
// json is to decide about.
PyObject *read_json(PyObject *self, PyObject *bytes);
PyObject *write_json(PyObject *self, PyObject *value);

#endif
