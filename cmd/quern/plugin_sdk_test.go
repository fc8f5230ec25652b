package main

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The SDK for Go that `plugin new` puts into a new plugin is the repository's: go:embed does not reach it where it is.
func TestTemplateSDK(t *testing.T) {
	t.Parallel()
	want := map[string][]byte{"LICENSE": content(t, "../../LICENSE")}
	err := filepath.WalkDir("../../sdk", func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"queue", "c", "conformance", "testdata"}, name):
			return filepath.SkipDir // a plugin in Go does not link it
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"), strings.HasSuffix(name, ".s"):
			relative, err := filepath.Rel("../..", path)
			if err != nil {
				return err
			}
			want[filepath.ToSlash(relative)+templateSuffix] = content(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.FromSlash(sdkTemplates)
	if *update {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			write(t, filepath.Join(folder, filepath.FromSlash(name)), string(text))
		}
	}
	got := map[string][]byte{}
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		got[filepath.ToSlash(relative)] = content(t, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if line := "\ngo " + sdkGoVersion + "\n"; !strings.Contains(string(content(t, "../../go.mod")), line) {
		t.Errorf("go.mod has no line %q: correct sdkGoVersion", line)
	}
	all := maps.Clone(want)
	maps.Copy(all, got)
	for name := range all {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s/%s is not what sdk has: `go test ./cmd/quern -run TestTemplateSDK -update` writes the folder anew", folder, name)
		}
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
