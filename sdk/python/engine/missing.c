// What CPython and its libraries refer to, and neither wasi-libc nor a handler has, or not as it must be.

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void *dlopen(const char *name, int flags) {
	(void)name, (void)flags;
	return NULL;
}

void *dlsym(void *handle, const char *name) {
	(void)handle, (void)name;
	return NULL;
}

char *dlerror(void) { return "a handler loads no native libraries"; }

// For SQLite and expat. wasi-libc's has a generator, whose state would be in the snapshot, from which all tasks start.
void arc4random_buf(void *to, size_t size) {
	enum { MOST = 256 }; // that getentropy takes
	for (char *at = to; size > 0;) {
		size_t piece = size < MOST ? size : MOST;
		if (getentropy(at, piece) != 0) abort();
		at += piece;
		size -= piece;
	}
}

// bzip2 calls this when it finds itself broken.
void bz_internal_error(int code) {
	(void)code;
	abort();
}

char *__real_strerror(int number);

// strerror is linked as this. The texts of OSError come from it, whatever it is that opens a file.
char *__wrap_strerror(int number) {
	if (number == EROFS) return "a handler writes no files: use io.BytesIO, quern.kv or the task's result";
	return __real_strerror(number);
}

int __real_open(const char *path, int flags, ...);
int __real_mkdir(const char *path, mode_t mode);

// open and mkdir are linked as these. To write in /tmp or another folder that a handler does not have is the same mistake as to
// write in one that it has.
int __wrap_open(const char *path, int flags, ...) {
	int fd = __real_open(path, flags, 0666);
	if (fd < 0 && errno == ENOENT && (flags & O_CREAT)) errno = EROFS;
	return fd;
}

int __wrap_mkdir(const char *path, mode_t mode) {
	int result = __real_mkdir(path, mode);
	if (result < 0 && errno == ENOENT) errno = EROFS;
	return result;
}
