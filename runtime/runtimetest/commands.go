package runtimetest

import (
	"strings"
	"testing"
)

// same is a line in the source of the handler json. After this line the source is the same for all kinds of guests and
// all hosts.
const same = "// ---- the same for all hosts\n"

// The source code that a command has instead of the lines before same, and the source code of the command's entry
// point.
const (
	commandC = `#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *input(void) {
	size_t size = 0, room = 4096;
	char *p = malloc(room);
	for (size_t n; (n = fread(p + size, 1, room - size - 1, stdin)) > 0;)
		if ((size += n) + 1 == room) p = realloc(p, room *= 2);
	p[size] = 0;
	return p;
}

static void output(const char *p, size_t n) { fwrite(p, 1, n, stdout); }

`
	mainC     = "\nint main(void) { return handle(); }\n"
	commandGo = `package main

import (
	"encoding/json"
	"io"
	"os"
)

func input() []byte {
	p, _ := io.ReadAll(os.Stdin)
	return p
}

func output(p []byte) { os.Stdout.Write(p) }

`
	mainGo = "func main() { os.Exit(int(handle())) }\n"
)

// JSONCommand returns a command in C or Go that does the same as the handler JSON. It reads the order from stdin and
// writes the order to stdout.
func (l Language) JSONCommand(t testing.TB) []byte {
	t.Helper()
	_, work, found := strings.Cut(l.HandlerSource(t, "json"), same)
	if !found {
		t.Fatalf("the handler json in %s does not say where the same for all hosts begins", l)
	}
	switch l {
	case C:
		return BuildC(t, commandC+strings.Replace(work, `__attribute__((export_name("quern_handle"))) `, "static ", 1)+mainC)
	case Go:
		work = strings.Replace(work, "//go:wasmexport quern_handle\n", "", 1)
		return BuildGo(t, commandGo+strings.Replace(work, "func main() {}\n", mainGo, 1))
	}
	t.Fatalf("no command json in %s", l)
	return nil
}
