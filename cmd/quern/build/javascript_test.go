package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A test that was saved after the build changes nothing in the module; what the handler is made of does, and what it is
// granted.
func TestNewerJavaScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, want := range map[string]bool{
		"handler.test.js": false, "lib/a.spec.ts": false, "test/a.js": false, "tests/b.json": false, "lib/__tests__/c.js": false,
		"handler.js": true, "testing.js": true, "latest/a.js": true, "tests/warm.txt": true, "package.json": true,
	} {
		for file, content := range map[string]string{
			"handler.js": "", "small.yaml": "name: small\nwarm: {input: tests/warm.txt}\n", "tests/warm.txt": "", name: "",
		} {
			path := filepath.Join(dir, name+".d", filepath.FromSlash(file))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Read(filepath.Join(dir, name+".d"))
		if err != nil {
			t.Fatal(err)
		}
		built := time.Now().Add(time.Hour)
		if newer := NewerFile(t.Context(), s, built); newer != "" {
			t.Errorf("%s is newer", newer)
		}
		file := filepath.Join(s.Dir, filepath.FromSlash(name))
		if err := os.Chtimes(file, built.Add(time.Hour), built.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if newer := NewerFile(t.Context(), s, built); (newer == file) != want {
			t.Errorf("%s changed: %q is newer", name, newer)
		}
	}
}

// A call with a locale that the engine does not have is found, at the name of the method.
func TestForeignLocale(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`x.toLocaleString("de-DE")`:                    "toLocaleString de-DE",
		`x.toLocaleDateString(["fr"], { month: "2" })`: "toLocaleDateString fr",
		"a.sort((a, b) => a.localeCompare(b, 'sv'))":   "localeCompare sv",
		"a.localeCompare(b.name, `tr`)":                "localeCompare tr",
		`a.localeCompare(b, "en-US") + a.localeCompare(b, "de-AT") + x.toLocaleString("en-US") + x.toLocaleString()`: "",
		`// x.toLocaleString("de-DE")`: "",
	} {
		var got string
		if found := foreignLocale(source); len(found) == 1 {
			method, locale, _ := strings.Cut(found[0].text, ": the locale ")
			got = method + " " + strings.Split(locale, `"`)[1]
			if !strings.HasPrefix(source[found[0].at:], method+"(") {
				t.Errorf("%s: at %d", source, found[0].at)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}
