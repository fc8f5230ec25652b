package runtime

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/bundle"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// carrying is a module that copies a file to its output, with a section for each of these trees of files.
func carrying(t *testing.T, sections ...map[string][]byte) []byte {
	t.Helper()
	return carriedBy(t, runtimetest.Cat(t), sections...)
}

// carriedBy is a module with a section for each of these trees of files.
func carriedBy(t *testing.T, module []byte, sections ...map[string][]byte) []byte {
	t.Helper()
	for _, files := range sections {
		var err error
		if module, err = bundle.Append(module, files); err != nil {
			t.Fatal(err)
		}
	}
	return module
}

// TestBundle: guests read the files that their module carries, and those that are granted instead of them.
func TestBundle(t *testing.T) {
	t.Parallel()
	library := map[string][]byte{"/lib/a": []byte("library"), "/lib/b": []byte("library")}
	engine := setup(t)
	before := engine.Held()
	one := loadInto(t, engine, carrying(t, library, map[string][]byte{"/app/handler": []byte("one"), "/lib/b/c": []byte("one")}))
	other := loadInto(t, engine, carrying(t, library, map[string][]byte{"/app/handler": []byte("other")}))
	if want := []CarriedFile{{"/lib/a", 7}, {"/lib/b", 7}, {"/app/handler", 3}, {"/lib/b/c", 3}}; !slices.Equal(one.Info().Files, want) {
		t.Errorf("files %v, want %v", one.Info().Files, want)
	}
	if one.bundled[0] != other.bundled[0] {
		t.Error("equal sections are in memory twice")
	}
	granted, err := NewFiles(map[string][]byte{"/lib": []byte("granted")})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		module     *Module
		files      *Files
		path, want string
	}{
		{one, nil, "/app/handler", "one"},
		{one, nil, "/lib/a", "library"},
		{one, nil, "/lib/b", ""},
		{one, nil, "/lib/b/c", "one"},
		{other, nil, "/app/handler", "other"},
		{other, nil, "/lib/b", "library"},
		{other, granted, "/lib", "granted"},
		{other, granted, "/lib/a", ""},
		{other, granted, "/app/handler", "other"},
	} {
		got := test.module.Bind(Profile{Files: test.files}).Run(t.Context(), Call{Input: []byte(test.path)})
		if string(got.Output) != test.want {
			t.Errorf("%s: %+v, want %q", test.path, got, test.want)
		}
	}
	if held := engine.Held() - before; held <= 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// TestModulesShareCode: modules that differ in what they carry compile and hold one code, as long as one of them is there.
func TestModulesShareCode(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	load := func(text string) *Module {
		m, err := engine.Load(t.Context(), carrying(t, map[string][]byte{"/app/handler": []byte(text)}))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	reads := func(m *Module, want string) {
		t.Helper()
		pool := m.Bind(Profile{})
		defer pool.Close()
		if got := pool.Run(t.Context(), Call{Input: []byte("/app/handler")}); string(got.Output) != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	one := load("one")
	alone := engine.Holdings().Code
	other := load("other")
	if both := engine.Holdings().Code; both > alone+alone/4 {
		t.Errorf("two modules hold %d bytes of code, and one %d", both, alone)
	}
	reads(one, "one")
	if err := one.Close(t.Context()); err != nil {
		t.Error(err)
	}
	reads(other, "other")
	if freed := engine.unload(t.Context(), other); freed == 0 {
		t.Error("the code of an idle module stays")
	}
	third := load("third")
	reads(other, "other")
	reads(third, "third")
	if err := errors.Join(other.Close(t.Context()), third.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if held := engine.Holdings().Code; held != 0 {
		t.Errorf("%d bytes of code are held", held)
	}
}

// TestSnapshotsShare: snapshots of the same code take what they have in common once, whichever goes first.
func TestSnapshotsShare(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	if engine.resetMode == ResetNew {
		t.Skip("this system has no snapshots")
	}
	module := loadInto(t, engine, runtimetest.BuildCHandler(t, `#include "quern.h"
static unsigned char table[2 << 20], seed[16];
static int size;
__attribute__((constructor)) static void start(void) {
  for (int i = 0; i < sizeof table; i++) table[i] = i % 251 + 1;
  size = quern_slot(quern_config_get("seed", 4), (char *)seed, sizeof seed);
}
QUERN_HANDLER int handle(void) {
  if (table[77777] != 77777 % 251 + 1 || seed[0] == 'x') return 1;
  table[77777] = 0;
  int32_t status = quern_output_write((char *)seed, size);
  seed[0] = 'x';
  return status;
}`))
	pool := func(seed string) *Pool { return module.Bind(Profile{Config: map[string]string{"seed": seed}}) }
	runs := func(p *Pool, want string) {
		t.Helper()
		for range 10 {
			if got := p.Run(t.Context(), Call{}); string(got.Output) != want {
				t.Fatalf("%+v, want %q", got, want)
			}
		}
	}
	one, two, three := pool("one"), pool("two"), pool("three")
	defer two.Close()
	defer three.Close()
	runs(one, "one")
	alone := engine.Holdings().Snapshots
	runs(two, "two")
	if both := engine.Holdings().Snapshots; both > alone+alone/8 {
		t.Errorf("two snapshots take %d bytes, and one %d", both, alone)
	}
	one.Close()
	runs(two, "two")
	runs(three, "three")
	runs(two, "two")
	if both := engine.Holdings().Snapshots; both > alone+alone/8 {
		t.Errorf("two snapshots take %d bytes after a third is gone, which took %d", both, alone)
	}
}

// TestBundleRefused: files that a guest could not see, or that would take too much memory, are refused by the name of the section.
func TestBundleRefused(t *testing.T) {
	t.Parallel()
	folders := map[string][]byte{} // without contents
	for i := range bundle.MaxEntries/2 - 1 {
		folders[fmt.Sprintf("/%d/%d", i, i)] = nil
	}
	engine := setup(t)
	for name, test := range map[string]struct {
		module []byte
		want   string
	}{
		"damaged":   {append(carrying(t), "\x00\x11\x0bquern.filesrubbish"[:19]...), "the archive is damaged"},
		"/nothing":  {carrying(t, map[string][]byte{"/checkpoint": nil}), "/checkpoint is where a task finds its checkpoint"},
		"sections":  {carrying(t, make([]map[string][]byte, maxSections+1)...), "9 sections of files, more than 8"},
		"folders":   {carrying(t, map[string][]byte{"/a": make([]byte, bundle.MaxBytes-4<<20)}, folders), "take more than 64MiB"},
		"too large": {carrying(t, map[string][]byte{"/a": make([]byte, bundle.MaxBytes+1)}), "a: no more than 67108864 bytes are left"},
		"together":  {carrying(t, map[string][]byte{"/a": make([]byte, bundle.MaxBytes-1000)}, map[string][]byte{"/b": make([]byte, 1000)}), "b: no more than"},
	} {
		_, err := engine.Load(t.Context(), test.module)
		if refused, ok := errors.AsType[*RefusedError](err); !ok || !strings.Contains(refused.Error(), test.want) || !strings.Contains(refused.Error(), bundle.Section) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}
