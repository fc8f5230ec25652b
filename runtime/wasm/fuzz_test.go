package wasm

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// addSeeds adds what Rewrite should see first: hostile files, damaged ones, modules of the specification's tests, random
// programs and real guests.
func addSeeds(f *testing.F) {
	for _, h := range hostileFiles() {
		if len(h.file) < 100_000 {
			f.Add(h.file)
		}
	}
	for _, file := range hostilePrograms() {
		if len(file) < 4000 {
			f.Add(file)
		}
	}
	for seed := range uint64(8) {
		f.Add(forge(smithBytes(seed, 300*int(seed+1))))
	}
	good := forge(smithBytes(9, 1000))
	for at := range 40 {
		f.Add(good[:len(good)*at/40])
		flipped := bytes.Clone(good)
		flipped[len(good)*at/40] ^= 1 << (at % 8)
		f.Add(flipped)
	}
	for _, pattern := range []string{"binary.*", "binary-leb128.*", "custom.*", "elem.?", "data.?", "global.?", "br_table.?", "ref_func.?", "bulk.?", "select.?", "simd_lane.??"} {
		paths, err := filepath.Glob(specPath(f, "v2", "testdata", pattern+".wasm"))
		if err != nil || len(paths) == 0 {
			f.Fatalf("%s: %d files, %v", pattern, len(paths), err)
		}
		for _, path := range paths[:min(30, len(paths))] {
			f.Add(readFile(f, path))
		}
	}
	f.Add(runtimetest.Empty(f))
}

// FuzzRewrite: no file makes Rewrite panic, take long or much memory, and what it gives is valid exactly if the file was.
func FuzzRewrite(f *testing.F) {
	addSeeds(f)
	runtime := validator(f)
	f.Fuzz(func(t *testing.T, file []byte) {
		kept := bytes.Clone(file)
		m, err := Rewrite(file, Options{})
		again, errAgain := Rewrite(file, Options{})
		if !bytes.Equal(m.Binary, again.Binary) || (err == nil) != (errAgain == nil) || !bytes.Equal(kept, file) {
			t.Fatalf("Rewrite is not the same twice: %v, %v", err, errAgain)
		}
		if err == nil {
			original, rewritten := compiles(t, runtime, file), compiles(t, runtime, m.Binary)
			if (original == nil) != (rewritten == nil) {
				t.Errorf("the file: %v, rewritten: %v", original, rewritten)
			}
			return
		}
		checkError(t, file, m, err)
		if isInvalid(err) && harmless(file) {
			if !refuses(t, runtime, file) && !wazeroIsLax(err) {
				t.Errorf("wazero takes what is refused: %v", err)
			}
		}
	})
}

// FuzzRewriteMemory is apart from FuzzRewrite, because it stops the world.
func FuzzRewriteMemory(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, file []byte) {
		got := allocated(func() { _, _ = Rewrite(file, Options{}) })
		if got > allowance(len(file)) {
			// The test's own workers may have allocated beside it: once more.
			if got = min(got, allocated(func() { _, _ = Rewrite(file, Options{}) })); got > allowance(len(file)) {
				t.Errorf("%d bytes were allocated for %d", got, len(file))
			}
		}
	})
}

func checkError(t *testing.T, file []byte, m *Rewritten, err error) {
	t.Helper()
	var bad *Error
	if !errors.As(err, &bad) || bad.Offset < 0 || bad.Offset > len(file) || m.Binary != nil {
		t.Fatalf("Rewrite = %+v, %#v", m, err)
	}
	if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
		t.Errorf("the error has control characters: %q", err)
	}
}

// isInvalid tells whether Rewrite refused a file because the specification does, and not by a cap, because of a proposal
// or a name of ours.
func isInvalid(err error) bool {
	var over *CapError
	return !errors.As(err, &over) && !errors.Is(err, ErrUnsupported) && !strings.Contains(err.Error(), Prefix)
}

// lax are the errors about what wazero 1.12.0 takes against the specification, with what it takes.
var lax = map[string]string{
	"data count section": "one without contents",
}

func wazeroIsLax(err error) bool {
	for part := range lax {
		if strings.Contains(err.Error(), part) {
			return true
		}
	}
	return false
}

// validator is a runtime that only looks whether modules are valid. Its interpreter compiles faster than its compiler.
func validator(f *testing.F) wazero.Runtime {
	runtime := wazero.NewRuntimeWithConfig(f.Context(), wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	f.Cleanup(func() { runtime.Close(context.Background()) })
	return runtime
}

func compiles(t *testing.T, runtime wazero.Runtime, file []byte) error {
	t.Helper()
	compiled, err := runtime.CompileModule(t.Context(), withoutCustom(file))
	if err == nil {
		err = compiled.Close(t.Context())
	}
	return err
}

// refuses tells whether wazero refuses a module that nobody has checked. It panics over some.
func refuses(t *testing.T, runtime wazero.Runtime, file []byte) (refused bool) {
	t.Helper()
	defer func() { refused = refused || recover() != nil }()
	return compiles(t, runtime, file) != nil
}

// withoutCustom drops the custom sections, as far as the file can be read: wazero dies of names of which there are many,
// and Rewrite takes no notice of them.
func withoutCustom(file []byte) []byte {
	r := reader{file: file, end: len(file), overflow: ErrTruncated}
	out := bytes.Clone(r.bytes(HeaderSize))
	for r.left() > 0 && r.err == nil {
		begin := r.at
		id := r.byte()
		part := r.part(r.u32(), errShort)
		if name := part.name(); id != sectionCustom || part.err != nil && name == "" {
			out = append(out, file[begin:r.at]...)
		}
	}
	return append(out, file[r.at:]...)
}

// harmless tells whether a file may be given to wazero, which allocates by counts that it has not checked: it is small,
// and there is no large number anywhere in it.
func harmless(file []byte) bool {
	if len(file) > 4096 {
		return false
	}
	for at := range file {
		r := reader{file: file, at: at, end: len(file), overflow: ErrTruncated}
		if n := r.u32(); n > 1<<17 {
			return false
		}
	}
	return true
}

// FuzzProgram runs random programs as they are and rewritten. The first byte chooses the options.
func FuzzProgram(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(smithBytes(seed+1000, int(100*(seed+1))))
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) == 0 || len(choices) > 1<<16 {
			return
		}
		o := smithOptions[int(choices[0])%len(smithOptions)]
		both := smithWorlds(t, o)
		both[1].quantum = 50
		file := forge(choices[1:])
		if difference := checkProgram(t, file, choices, both); difference != "" {
			t.Error(difference)
		}
		if m, err := Rewrite(file, Options{}); err != nil {
			t.Error(err)
		} else {
			verify(t, m, false)
		}
	})
}
