// What CPython and bzip2 refer to, and neither wasi-libc nor a handler has.

#include <stddef.h>
#include <stdlib.h>

void *dlopen(const char *name, int flags) {
	(void)name, (void)flags;
	return NULL;
}

void *dlsym(void *handle, const char *name) {
	(void)handle, (void)name;
	return NULL;
}

char *dlerror(void) { return "a handler loads no native libraries"; }

// bzip2 calls this when it finds itself broken.
void bz_internal_error(int code) {
	(void)code;
	abort();
}
