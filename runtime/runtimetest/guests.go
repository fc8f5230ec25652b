package runtimetest

import (
	"embed"
	"strconv"
	"testing"
)

//go:embed guests/*.c guests/empty/main.go
var sources embed.FS

// Each of the following functions returns a command. Its comment says what the command does.

// Echo copies stdin to stdout.
func Echo(t testing.TB) []byte { return guest(t, "echo") }

// Cat copies the file whose path is on stdin, without a newline, to stdout. If the file cannot be read, Cat exits with
// 66, and says why on stderr.
func Cat(t testing.TB) []byte { return guest(t, "cat") }

// Exit exits with the code that stdin begins with, in decimal. It writes the rest of stdin to stderr, and "output" and
// a newline to stdout.
func Exit(t testing.TB) []byte { return guest(t, "exit") }

// Loop writes "ready" to stderr and loops for ever.
func Loop(t testing.TB) []byte { return guest(t, "loop") }

// Sleep writes "ready" to stderr, sleeps for the number of milliseconds on stdin, and then writes "awake" and a newline
// to stdout.
func Sleep(t testing.TB) []byte { return guest(t, "sleep") }

// MemoryBomb allocates memory until it has the number of MiB on stdin, without end if stdin is empty. If no memory is
// left, it exits with 1.
func MemoryBomb(t testing.TB) []byte { return guest(t, "memorybomb") }

// OutputFlood writes the number of bytes on stdin to stdout. If stdin is empty, it never stops.
func OutputFlood(t testing.TB) []byte { return guest(t, "outputflood") }

// LogFlood writes the number of bytes on stdin to stderr. If stdin is empty, it never stops.
func LogFlood(t testing.TB) []byte { return guest(t, "logflood") }

// Trap traps in the way that stdin names: unreachable, divide, overflow, conversion, memory, null,
// table, mismatch, recursion (WebAssembly's stack) or descent (C's stack).
func Trap(t testing.TB) []byte { return guest(t, "trap") }

// Version writes the given version to stdout. Different versions are different modules.
func Version(t testing.TB, version string) []byte {
	return guest(t, "version", "-DVERSION="+strconv.Quote(version))
}

// Env writes its arguments, each as "arg VALUE", and its environment to stdout, one per line.
func Env(t testing.TB) []byte { return guest(t, "env") }

// Clock writes to stdout, one per line, the wall clock and the monotonic clock in nanoseconds, and 16 random bytes in
// hex.
func Clock(t testing.TB) []byte { return guest(t, "clock") }

// Empty does nothing. It is written in C.
func Empty(t testing.TB) []byte { return guest(t, "empty") }

// EmptyGo does nothing. It is written in Go.
func EmptyGo(t testing.TB) []byte {
	t.Helper()
	source, err := sources.ReadFile("guests/empty/main.go")
	if err != nil {
		t.Fatalf("read Go guest: %v", err)
	}
	return BuildGo(t, string(source))
}

func guest(t testing.TB, name string, arguments ...string) []byte {
	t.Helper()
	source, err := sources.ReadFile("guests/" + name + ".c")
	if err != nil {
		t.Fatalf("read guest %s: %v", name, err)
	}
	return BuildC(t, string(source), arguments...)
}
