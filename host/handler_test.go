package host

import (
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// Handlers of which a test needs several that differ are told apart by the number N.

// bulky is a handler that takes 4 MiB of memory, and fails for good if it does not find it as it was
// before any task.
func bulky(t testing.TB, number string) []byte {
	t.Helper()
	return runtimetest.BuildCHandler(t, `
#include "quern.h"
static volatile unsigned char block[4 << 20];
QUERN_HANDLER int32_t handle(void) {
	for (uint32_t i = 0; i < sizeof block; i += 4096) {
		if (block[i]) return 65;
		block[i] = N;
	}
	return 0;
}`, "-DN="+number)
}

// numbered is a handler that sleeps for as many tenths of a second as the first digit of its input
// says, and then writes its number.
func numbered(t testing.TB, number string) []byte {
	t.Helper()
	return runtimetest.BuildCHandler(t, `
#include <string.h>
#include <unistd.h>
#include "quern.h"
static char text[] = N;
QUERN_HANDLER int32_t handle(void) {
	char tenths = '0';
	quern_input_read(0, &tenths, 1);
	usleep((tenths - '0') * 100000);
	return quern_output_write(text, strlen(text));
}`, `-DN="`+number+`"`)
}

// telling is a handler that fails once, and then writes what it can ask of its task: its number, what it failed for, its
// parent and its key.
func telling(t testing.TB) []byte {
	t.Helper()
	return runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	int64_t attempt;
	quern_task_number(0, &attempt);
	if (attempt == 1) return quern_error_set("no luck", 7), 1;
	static char text[100];
	for (int32_t field = 4; field <= 6; field++) {
		int32_t size = quern_task_text(field);
		quern_result_read(0, text, sizeof text);
		quern_output_write(text, size);
		quern_output_write("|", 1);
	}
	return 0;
}`)
}

// willing is a handler that says "ready" and goes on until it is told to end; then it writes "told".
func willing(t testing.TB) []byte {
	t.Helper()
	return runtimetest.BuildCHandler(t, `
#include <stdio.h>
#include <unistd.h>
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	fputs("ready\n", stderr);
	while (!quern_cancelled()) usleep(1000);
	return quern_output_write("told", 4);
}`)
}
