package runtime

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/bundle"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// carrying is a module that copies a file to its output, with a section for each of these trees of files.
func carrying(t *testing.T, sections ...map[string][]byte) []byte {
	t.Helper()
	module := runtimetest.Cat(t)
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

func TestBundleRefused(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	for name, test := range map[string]struct {
		module []byte
		want   string
	}{
		"damaged":   {append(carrying(t), "\x00\x11\x0bquern.filesrubbish"[:19]...), "the archive is damaged"},
		"/nothing":  {carrying(t, map[string][]byte{"/checkpoint": nil}), "/checkpoint is where a task finds its checkpoint"},
		"too large": {carrying(t, map[string][]byte{"/a": make([]byte, maxBundle)}, map[string][]byte{"/b": make([]byte, 1)}), "b: no more than 0 bytes are left"},
	} {
		_, err := engine.Load(t.Context(), test.module)
		if refused, ok := errors.AsType[*RefusedError](err); !ok || !strings.Contains(refused.Error(), test.want) || !strings.Contains(refused.Error(), bundle.Section) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}
