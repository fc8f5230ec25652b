package runtime

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// hostResidue is a guest in C, for both kinds, that says on stderr all that the host shows it, up to the line
// "looked". Then it leaves what it can with the host, if it is to be loud, and ends as it is told. Its input is the
// ending, "l" (loud), "s" (silent) or "w" (loud without a task), and a name.
const hostResidue = `
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wasi/api.h>

static char text[8192], input[256], canary[300], buffer[512];
static size_t length;

// A global of WebAssembly's own, which is 1 when the guest has begun.
__asm__(".globaltype begun, i32\nbegun:\n");
static int get_begun(void) { int n; __asm__ volatile("global.get begun\nlocal.set %0" : "=r"(n)); return n; }
static void set_begun(int n) { __asm__ volatile("local.get %0\nglobal.set begun" : : "r"(n)); }
__attribute__((constructor)) static void begin(void) { set_begun(get_begun() + 1); }

static void say(const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	length += vsnprintf(text + length, sizeof text - length, format, arguments);
	va_end(arguments);
}

static void put(int fd, const char *p, size_t size) {
	__wasi_ciovec_t vector = {(const uint8_t *)p, size};
	__wasi_size_t written;
	(void)__wasi_fd_write(fd, &vector, 1, &written);
}

static size_t get(int fd, char *p, size_t size) {
	__wasi_iovec_t vector = {(uint8_t *)p, size};
	__wasi_size_t n = 0;
	return __wasi_fd_read(fd, &vector, 1, &n) == 0 ? n : 0;
}

static int opened(const char *path) {
	__wasi_fd_t fd = -1;
	if (__wasi_path_open(3, 0, path, 0, __WASI_RIGHTS_FD_READ | __WASI_RIGHTS_FD_SEEK | __WASI_RIGHTS_FD_TELL, 0, 0, &fd) != 0) return -1;
	return fd;
}

static void look_at_lists(void) {
	static uint8_t *pointers[64], bytes[2048];
	__wasi_size_t count, size;
	if (__wasi_args_sizes_get(&count, &size) == 0 && __wasi_args_get(pointers, bytes) == 0)
		for (size_t i = 0; i < count; i++) say("arg %s\n", pointers[i]);
	if (__wasi_environ_sizes_get(&count, &size) == 0 && __wasi_environ_get(pointers, bytes) == 0)
		for (size_t i = 0; i < count; i++) say("env %s\n", pointers[i]);
}

static void look_at_files(void) {
	for (int fd = 0; fd < 32; fd++) {
		__wasi_fdstat_t stat;
		__wasi_prestat_t prestat;
		__wasi_filesize_t offset = 0;
		if (__wasi_fd_fdstat_get(fd, &stat) != 0) continue;
		(void)__wasi_fd_tell(fd, &offset);
		say("fd %d: type %d, flags %d, offset %d, preopened %d\n", fd, stat.fs_filetype, stat.fs_flags, (int)offset, __wasi_fd_prestat_get(fd, &prestat) == 0);
	}
	for (const char **path = (const char *[]){"data/file", "checkpoint", NULL}; *path; path++) {
		int fd = opened(*path);
		if (fd < 0) continue;
		say("%s is fd %d: %.*s\n", *path, fd, (int)get(fd, buffer, sizeof buffer), buffer);
		(void)__wasi_fd_close(fd);
	}
}

#ifdef COMMAND
static size_t look_at_task(char mode) { return 0; }
static void leave_with_task(char mode) { put(1, canary, strlen(canary)); }
static int overflow(void) { for (;;) put(1, text, sizeof text); }
#else
#include "quern.h"
static size_t look_at_task(char mode) {
	if (mode == 'w') return 0;
	say("slot: %d\n", quern_result_read(0, buffer, sizeof buffer));
	for (int field = 0; field < 7; field++) {
		int n = quern_task_text(field);
		quern_result_read(0, buffer, n);
		say("text %d: %.*s\n", field, n, buffer);
	}
	int64_t number[4];
	for (int field = 0; field < 4; field++) quern_task_number(field, &number[field]);
	say("attempt %d of %d, deadline %d, fuel bound %d, cancelled %d\n",
		(int)number[0], (int)number[1], number[2] != 0, number[3] != INT64_MAX, quern_cancelled());
	return 0;
}
static void leave_with_task(char mode) {
	quern_output_write(canary, strlen(canary));
	quern_error_set(canary, strlen(canary));
	quern_retry_after(17000);
	if (mode != 'w') quern_task_text(0);
}
static int overflow(void) { while (quern_output_write(text, sizeof text) == 0); return 3; }
#endif

static void leave_files(void) {
	__wasi_filesize_t offset;
	int first = opened("data/file"), second = opened("data/file"), third = opened("data/file");
	(void)opened("data");
	get(first, buffer, 3);
	(void)__wasi_fd_seek(second, 6, __WASI_WHENCE_SET, &offset);
	(void)__wasi_fd_fdstat_set_flags(second, __WASI_FDFLAGS_APPEND);
	(void)__wasi_fd_fdstat_set_flags(1, __WASI_FDFLAGS_NONBLOCK);
	(void)__wasi_fd_renumber(third, 0);
	(void)__wasi_fd_close(3);
}

// The last words and the line before them come in one write, so that whoever ends the guest at that line has both.
static void leave(char mode, char ending) {
	set_begun(100);
	leave_files();
	leave_with_task(mode);
	length = 0;
	say("quern:progress=0.25 %s\nleft %s\n", canary, canary);
	switch (ending == 'y' ? 4 : canary[strlen(canary) - 1] & 3) {
	case 0: say("%s unfinished", canary); break;
	case 1: say("quern:prog"); break;
	case 2: say("quern:progress=0.5 %s", canary); break;
	case 4: say("quern:retry-after=17s"); break;
	}
	put(2, text, length);
	length = 0;
}

static volatile int one = 1;

static int end(char ending) {
	switch (ending) {
	case 'c': return 0;
	case 'f': return 65;
	case 'y': return 75;
	case 't': __builtin_trap();
	case 'e': exit(7);
	case 'l': while (one); return 0;
	case 'w': {
		__wasi_subscription_t sleep = {.u = {.tag = __WASI_EVENTTYPE_CLOCK, .u.clock = {.id = __WASI_CLOCKID_MONOTONIC, .timeout = 3600000000000}}};
		__wasi_event_t event;
		__wasi_size_t n;
		(void)__wasi_poll_oneoff(&sleep, &event, 1, &n);
		return 0;
	}
	case 'm': while (__builtin_wasm_memory_grow(0, 1) != -1); return 3;
	case 'o': return overflow();
	case 'q': for (;;) put(2, "\nflood", 6);
	default: return 3;
	}
}

static int run(size_t n) {
	char ending = input[0], mode = input[1];
	say("warmed: %s, begun: %d\n", canary + strlen("canary-") * (canary[0] != 0), get_begun()); // a warm image is of another call
	snprintf(canary, sizeof canary, "canary-%.*s", (int)n - 2, input + 2);
	look_at_lists();
	look_at_files();
	look_at_task(mode);
	say("pages %d\n%.*s\nlooked\n", (int)__builtin_wasm_memory_size(0), (int)n, input);
	put(2, text, length);
	length = 0;
	if (mode != 's') leave(mode, ending);
	return end(ending);
}

#ifdef COMMAND
int main(void) { return run(get(0, input, sizeof input)); }
#else
QUERN_HANDLER int32_t handle(void) { return run(quern_input_read(0, input, sizeof input)); }
#endif
`

// hostEnds are how it ends, by what it is told.
var hostEnds = map[byte]end{
	'c': {kind: Complete}, 'f': {Fatal, exitFatal, ""}, 'y': {Retry, exitRetry, ""}, '3': {Failed, 3, ""},
	't': {Trap, 0, "unreachable"}, 'e': {Failed, 7, ""}, 'l': byFuel, 'w': byCaller, 'm': {LimitExceeded, 0, "memory"},
	'o': {LimitExceeded, 0, "output"}, 'q': {LimitExceeded, 0, "log"},
}

// TestResidueOfHost: what the host keeps of a task is not there for the next one: output, log, progress, error,
// retry-after, result slot, descriptors, environment, arguments, checkpoint, and at which limits it was told no.
func TestResidueOfHost(t *testing.T) {
	t.Parallel()
	seed := seeded(t)
	binaries := [][]byte{runtimetest.BuildCHandler(t, hostResidue), runtimetest.BuildC(t, hostResidue, "-DCOMMAND")}
	eachResetMode(t, func(t *testing.T, engine *Engine) {
		for n, binary := range binaries {
			h := hostRun{crowd: crowd{engine, loadInto(t, engine, binary), seed + uint64(n), residueTasks() / 2}}
			for n, p := range places {
				files, err := NewFiles(map[string][]byte{"/data/file": fmt.Append(nil, "of ", p)})
				if err != nil {
					t.Fatal(err)
				}
				h.files[n] = files
			}
			t.Run(string(h.module.Info().Kind), func(t *testing.T) {
				h.run(t, func(random *rand.Rand) bool { return h.task(t, random) })
			})
		}
	}, binaries...)
}

// hostRun is a crowd of tasks of the guest.
type hostRun struct {
	crowd
	files [4]*Files // of each place
	names atomic.Int64
}

// heard is what a caller hears of a task while it runs.
type heard struct{ lines, progress []string }

// task runs one task, and is false if it was not as it should be.
func (h *hostRun) task(t *testing.T, random *rand.Rand) bool {
	t.Helper()
	where := random.IntN(len(places))
	endings := []byte("cccffyy333tteelwmoq")
	ending, mode := endings[random.IntN(len(endings))], "ls"[random.IntN(2)]
	if ending == 'w' {
		mode = 'l' // it is cancelled at what it says then
	}
	name := fmt.Sprintf("%s-%s-%d", places[where].tenant, places[where].pool, h.names.Add(1))
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	var said heard
	c := placedCall{pool: places[where].pool, Profile: Profile{
		Tenant: places[where].tenant, Env: map[string]string{"GRANTED": fmt.Sprint(places[where])}, Files: h.files[where],
		Limits: Limits{Memory: 1 << 20, Output: 1000, Log: 8 << 10},
	}}
	c.Call = Call{
		TaskID: "id-" + name, Queue: "queue-" + name, Plugin: "plugin-" + name,
		Attempt: 1 + random.IntN(9), MaxAttempts: random.IntN(2) * 9,
		Input: []byte(string(ending) + string(mode) + name),
		Log: func(line string) {
			said.lines = append(said.lines, line)
			if ending == 'w' && strings.HasPrefix(line, "left") {
				stop(errDrain)
			}
		},
		Progress: func(fraction float64, message string) {
			said.progress = append(said.progress, fmt.Sprint(fraction, " ", message))
		},
	}
	h.vary(random, &c, name)
	if ending == 'l' {
		c.Limits.CPU = 3 * time.Millisecond
	}
	got := c.run(ctx, h.module)
	wrong := h.wrong(&c, ending, mode == 'l', name, got, said)
	if wrong != "" {
		t.Errorf("%s\nof the task %q: %+v\nheard %q\nprogress %q", wrong, c.Input, got, said.lines, said.progress)
	}
	return wrong == ""
}

// vary gives a task some of what it need not have.
func (h *hostRun) vary(random *rand.Rand, c *placedCall, name string) {
	for _, text := range []*string{&c.PreviousError, &c.Parent, &c.Key} {
		if random.IntN(2) == 0 {
			*text = "some-" + name
		}
	}
	if random.IntN(2) == 0 {
		c.Checkpoint = []byte("checkpoint-" + name)
	}
	if random.IntN(2) == 0 {
		c.Timeout = time.Hour
	}
	if random.IntN(2) == 0 {
		c.Limits.CPU = time.Hour
	}
	if random.IntN(2) == 0 {
		ending := make(chan struct{})
		close(ending)
		c.Ending = ending
	}
	if c.pool == "warm" && h.module.Info().Kind == Handler {
		c.Warm = []byte("cwwarm-" + c.Tenant)
	}
}

// shown is what the host shows to a task, as the guest tells it.
func (h *hostRun) shown(c *placedCall) []string {
	lines := []string{"warmed: , begun: 1", "arg handler"}
	if h.module.Info().Kind == Command {
		lines[1] = "arg " + c.Plugin
	}
	if c.Warm != nil && h.module.Info().ResetMode != ResetNew {
		lines[0] = "warmed: warm-" + c.Tenant + ", begun: 100"
	}
	for _, variable := range bound(h.module, c.pool, c.Profile).environment(&c.Call) {
		lines = append(lines, "env "+variable)
	}
	lines = append(
		lines,
		"fd 0: type 0, flags 0, offset 0, preopened 0", "fd 1: type 0, flags 0, offset 0, preopened 0",
		"fd 2: type 0, flags 0, offset 0, preopened 0", "fd 3: type 3, flags 0, offset 0, preopened 1",
		fmt.Sprintf("data/file is fd 4: of {%s %s}", c.Tenant, c.pool),
	)
	if h.module.Info().Kind == Command {
		if c.Checkpoint != nil {
			lines = append(lines, "checkpoint is fd 4: "+string(c.Checkpoint))
		}
	} else {
		lines = append(lines, "slot: 0")
		for n, text := range []string{c.TaskID, c.Queue, c.Tenant, c.Plugin, c.PreviousError, c.Parent, c.Key} {
			lines = append(lines, fmt.Sprintf("text %d: %s", n, text))
		}
		lines = append(lines, fmt.Sprintf(
			"attempt %d of %d, deadline %d, fuel bound %d, cancelled %d",
			c.Attempt, c.MaxAttempts, one(c.Timeout > 0), one(c.Limits.CPU > 0), one(c.Ending != nil),
		))
	}
	return append(lines, "pages 2", string(c.Input), "looked")
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

var anyCanary = regexp.MustCompile(`canary[-\w]*`)

// wrong says what is wrong about the end of a task and all that was said of it; "" is nothing.
func (h *hostRun) wrong(c *placedCall, ending byte, loud bool, name string, got Outcome, said heard) string {
	canary := "canary-" + name
	texts := slices.Concat([]string{got.Message, got.Stderr, string(got.Output)}, said.lines, said.progress, got.Backtrace)
	for _, found := range anyCanary.FindAllString(strings.Join(texts, "\n"), -1) {
		if found != canary || !loud {
			return "it found " + found
		}
	}
	looked := slices.Index(said.lines, "looked") + 1
	want := h.shown(c)
	if !slices.Equal(said.lines[:looked], want) {
		return fmt.Sprintf("it saw %q, want %q", said.lines[:looked], want)
	}
	lines, progress, output, after := h.says(canary, ending, loud)
	if ending == 'q' {
		lines = said.lines[looked:]
	}
	switch {
	case endOf(got) != hostEnds[ending]:
		return fmt.Sprintf("it ended as %+v, want %+v", endOf(got), hostEnds[ending])
	case !slices.Equal(said.lines[looked:], lines) || !slices.Equal(said.progress, progress):
		return fmt.Sprintf("want %q heard and progress %q", lines, progress)
	case string(got.Output) != output || got.RetryAfter != after:
		return fmt.Sprintf("want the output %q and %v to wait", output, after)
	case got.Kind == Failed || got.Kind == Fatal || got.Kind == Trap || got.Kind == Retry:
		// The last line, if the guest says nothing itself.
		if !loud && !strings.HasSuffix(got.Message, ": looked") {
			return "want a message with the last line"
		}
		if loud && h.module.Info().Kind == Handler && !strings.HasSuffix(got.Message, canary) {
			return "want a message with its error"
		}
	}
	return ""
}

// says is what a task says after it has looked, and what it leaves.
func (h *hostRun) says(canary string, ending byte, loud bool) (lines, progress []string, output string, after time.Duration) {
	if !loud {
		return nil, nil, "", 0
	}
	lines, progress = []string{"left " + canary}, []string{"0.25 " + canary}
	last := canary[len(canary)-1] & 3
	switch {
	case ending == 'y':
		last, after = 4, 17*time.Second
	case hostEnds[ending].kind == Failed && h.module.Info().Kind == Handler: // a command asks by its last line
		after = 17 * time.Second
	}
	switch last {
	case 0:
		lines = append(lines, canary+" unfinished")
	case 1:
		lines = append(lines, "quern:prog")
	case 2:
		progress = append(progress, "0.5 "+canary)
	case 4:
		lines = append(lines, "quern:retry-after=17s")
	}
	if ending == 'c' {
		output = canary
	}
	return lines, progress, output, after
}
