#ifndef HOST_H
#define HOST_H

#include <Python.h>

// quern_module makes the module _quern.
PyObject *quern_module(void);

#endif
