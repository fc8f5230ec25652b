// Does what $BEHAVIOUR says: see languages_test.go.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HELLO "/data/hello.txt"

static uint32_t fnv(uint32_t hash, const uint8_t *p, size_t n) {
	while (n--) hash = (hash ^ *p++) * 16777619;
	return hash;
}

// digest reads a descriptor to its end, with reads of so many bytes.
static void digest(int fd, size_t step) {
	uint8_t *buffer = malloc(step);
	uint32_t hash = 2166136261;
	long total = 0;
	ssize_t n;
	while ((n = read(fd, buffer, step)) > 0) hash = fnv(hash, buffer, n), total += n;
	printf("%ld %08x %d", total, hash, n == 0 && read(fd, buffer, step) == 0 ? 0 : errno);
}

static void streams(void) {
	for (int i = 0; i < 500; i++) {
		printf("out %d\n", i);
		fflush(stdout);
		fprintf(stderr, "err %d\n", i);
	}
}

static void flood(void) {
	size_t size = 1 << 20;
	uint8_t *p = malloc(size);
	for (size_t i = 0; i < size; i++) p[i] = i * 7 >> 3;
	for (size_t done = 0; done < size;) done += write(1, p + done, size - done);
	for (int i = 0; i < 600; i++) fprintf(stderr, "%099d\n", i);
}

static uint64_t now(clockid_t id) {
	struct timespec t;
	if (clock_gettime(id, &t) != 0) exit(1);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void clocks(void) {
	uint64_t first = now(CLOCK_MONOTONIC), last = first;
	for (int i = 0; i < 1000; i++) {
		uint64_t next = now(CLOCK_MONOTONIC);
		if (next < last) exit(1);
		last = next;
	}
	printf("%llu %s", (unsigned long long)now(CLOCK_REALTIME), last > first ? "rising" : "standing");
}

static void nap(void) {
	uint64_t began = now(CLOCK_MONOTONIC);
	struct timespec t = {.tv_nsec = 20000000};
	int error = nanosleep(&t, NULL);
	printf("%d %s", error, now(CLOCK_MONOTONIC) - began >= 20000000 ? "slept" : "woke early");
}

static void randomness(void) {
	for (int i = 0; i < 3; i++) {
		uint8_t b[16];
		if (getentropy(b, sizeof b) != 0) exit(1);
		for (int j = 0; j < 16; j++) printf("%02x", b[j]);
		printf(" ");
	}
}

static void memory(void) {
	size_t size = 32 << 20;
	volatile uint8_t *p = malloc(size);
	if (!p) exit(1);
	unsigned sum = 0;
	for (size_t i = 0; i < size; i += 4096) p[i] = i >> 12, sum += p[i];
	printf("%u", sum);
}

static void cat(const char *path) {
	char buffer[100];
	FILE *in = fopen(path, "rb");
	if (!in) {
		printf("%d", errno);
		return;
	}
	size_t n;
	while ((n = fread(buffer, 1, sizeof buffer, in)) > 0) fwrite(buffer, 1, n, stdout);
	fclose(in);
}

static void seek(void) {
	char a[5] = "", b[8] = "", c;
	int fd = open(HELLO, O_RDONLY);
	lseek(fd, -5, SEEK_END), read(fd, a, 4);
	lseek(fd, 7, SEEK_SET), read(fd, b, 7);
	int back = lseek(fd, -7, SEEK_CUR), beyond = lseek(fd, 100, SEEK_SET), n = read(fd, &c, 1);
	int before = lseek(fd, -1, SEEK_SET) < 0 ? errno : 0;
	printf("%s %s %d %d %d %d", a, b, back, beyond, n, before);
}

static const char *kind(mode_t mode) { return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "directory" : "other"; }

static void status(void) {
	struct stat s;
	if (stat(HELLO, &s) != 0) exit(errno);
	printf("%ld %s", (long)s.st_size, kind(s.st_mode));
	if (fstat(open(HELLO, O_RDONLY), &s) != 0) exit(errno);
	printf(" %ld %s", (long)s.st_size, kind(s.st_mode));
	if (stat("/data/nested", &s) != 0) exit(errno);
	printf(" %s", kind(s.st_mode));
	if (stat("/data/empty", &s) != 0) exit(errno);
	printf(" %ld %s", (long)s.st_size, kind(s.st_mode));
}

static int opening(const char *path, int flags) { return open(path, flags, 0666) < 0 ? errno : 0; }

static void missing(void) {
	printf("%d %d %d %s", opening("/data/none", O_RDONLY), opening("/data/none/below", O_RDONLY),
	       opening(HELLO "/below", O_RDONLY), opening("/data/../../etc/passwd", O_RDONLY) ? "closed" : "open");
}

static int error(int result) { return result == 0 ? 0 : errno; }

static void writes(void) {
	printf("%d %d ", opening(HELLO, O_WRONLY), opening("/data/new", O_WRONLY | O_CREAT));
	printf("%d ", error(mkdir("/data/dir", 0777)));
	printf("%d ", error(unlink(HELLO)));
	printf("%d ", error(rename(HELLO, "/data/other")));
	cat(HELLO);
}

static int byName(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

static int list(const char *path, char **names) {
	int n = 0;
	struct dirent *e;
	DIR *dir = opendir(path);
	if (!dir) exit(errno);
	while ((e = readdir(dir))) {
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			asprintf(&names[n++], "%s:%s", e->d_name, e->d_type == DT_DIR ? "directory" : e->d_type == DT_REG ? "file" : "other");
	}
	closedir(dir);
	qsort(names, n, sizeof *names, byName);
	return n;
}

static void lists(void) {
	static char *names[1000];
	for (int i = 0, n = list("/data", names); i < n; i++) printf("%s ", names[i]);
	int n = list("/many", names);
	printf("%d %s %s", n, names[0], names[n - 1]);
}

int main(int argc, char **argv) {
	const char *b = getenv("BEHAVIOUR");
	if (!b) return 1;
#define IS(name) else if (!strcmp(b, name))
	if (0) {}
	IS("args") printf("%d %s", argc, argv[0]);
	IS("env") printf("%s|%s|%s|%s", getenv("GREETING"), getenv("TASK_ID"), getenv("EMPTY"), getenv("NONE") ? "set" : "unset");
	IS("stdin") digest(0, 256 << 10);
	IS("stdin in small reads") digest(0, 7);
	IS("streams") streams();
	IS("flood") flood();
	IS("exit") { printf("left"); exit(atoi(getenv("CODE"))); }
	IS("panic") { fprintf(stderr, "went wrong\n"); abort(); }
	IS("trap") __builtin_trap();
	IS("clocks") clocks();
	IS("sleep") nap();
	IS("random") randomness();
	IS("memory") memory();
	IS("file") cat(HELLO);
	IS("relative path") cat("data/hello.txt");
	IS("large file") digest(open("/data/nested/deep/large", O_RDONLY), 10000);
	IS("seek") seek();
	IS("stat") status();
	IS("missing file") missing();
	IS("writes") writes();
	IS("directories") lists();
	IS("checkpoint") cat("/checkpoint");
	else return 1;
	return 0;
}
