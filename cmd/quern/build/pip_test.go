package build

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/bundle"
	"github.com/quern-project/quern/runtime/runtimetest"
)

func TestReadRequirements(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{
		"requirements.txt": "# a comment\nJinja2==3.1.6   # another\n-r more.txt\n-c limits.txt\n",
		"more.txt":         "PyYAML\n-r requirements.txt\n",
		"limits.txt":       "PyYAML<7\n",
		"folder.txt":       "-r ./more.txt\n",
		"near.txt":         "./libs/words\n",
		"url.txt":          "words @ https://example.com/words#sha256=1\n",
		"none.txt":         "-r nowhere.txt\n",
		"editable.txt":     "--editable=.\n",
	})
	for name, test := range map[string]struct {
		want  []string
		local bool
		err   string
	}{
		"requirements.txt": {[]string{"Jinja2==3.1.6", "PyYAML", "-r requirements.txt", "-r more.txt", "PyYAML<7", "-c limits.txt"}, false, ""},
		"folder.txt":       {[]string{"PyYAML", "Jinja2==3.1.6", "-r more.txt", "PyYAML<7", "-c limits.txt", "-r requirements.txt", "-r ./more.txt"}, false, ""},
		"near.txt":         {[]string{"./libs/words"}, true, ""},
		"url.txt":          {[]string{"words @ https://example.com/words#sha256=1"}, false, ""},
		"nothing.txt":      {nil, false, ""},
		"none.txt":         {nil, false, "nowhere.txt: no such file or directory: make it a readable file, or correct the line that names it"},
		"editable.txt":     {nil, false, "without -e"},
	} {
		got, local, err := readRequirements(filepath.Join(dir, name), map[string]bool{})
		var texts []string
		for _, line := range got {
			texts = append(texts, line.text)
		}
		if !slices.Equal(texts, test.want) || local != test.local || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %q, %t, %v", name, got, local, err)
		}
		if name == "requirements.txt" && got[0].where != filepath.Join(dir, name)+":2" {
			t.Errorf("Jinja2 is in %s", got[0].where)
		}
	}
}

// An error about a package names the line that asks for it, also if the package comes with another one.
func TestRequiredBy(t *testing.T) {
	t.Parallel()
	const said = "Collecting six (from -r requirements.txt (line 1))\n  Using cached six\nCollecting pydantic==2.11 (from -r requirements.txt (line 3))\n" +
		"Collecting pydantic_core==2.33.2 (from pydantic==2.11->-r requirements.txt (line 3))\n"
	for name, want := range map[string]string{
		"six": "a/requirements.txt:1: ", "pydantic-core": "a/requirements.txt:3: pydantic==2.11 needs a package that a plugin cannot have: ", "other": "",
	} {
		if got := requiredBy(name, said, "a"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// An import within a function fails only in a task, so the build tells of it.
func TestCheckImports(t *testing.T) {
	t.Parallel()
	got := checkImports(map[string][]byte{
		"/app/handler.py": []byte("\"\"\"Text\nimport numpy\n\"\"\"\nimport json, lib\ndef handle(task):\n    import numpy as np\n    from yaml import load\n    import requests\n" +
			"    try:\n        import orjson\n    except ImportError: pass\n    # import redis\n    import redis.asyncio\n    import jwt, pandas_like\n"),
		"/app/redis/__init__.py": nil, installed + "/requests/__init__.py": []byte("import numpy\n"), "/app/data.txt": []byte("import numpy\n"),
	})
	want := []string{
		"/app/handler.py:6: import of numpy: numpy has native code, which a plugin cannot load, and no version without: use the module statistics, or a plugin in Go or C",
		"/app/handler.py:7: import of yaml: install pyyaml by a line in requirements.txt",
		"/app/handler.py:14: import of jwt: install pyjwt by a line in requirements.txt",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// What is on this machine may change, so it is not kept; a URL is.
func TestNearby(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"./libs/words": true, "/libs/words": true, "libs/words": true, "libs/words[fast] ; python_version > '3'": true, ".": true, "..": true, ".[fast]": true,
		"words-1.0-py3-none-any.whl": true, "words-1.0.tar.gz --hash=sha256:1": true, "words.zip[fast]": true, "words.tgz; python_version > '3'": true,
		"words @ file:///libs/words": true, "file:libs/words": true, "-f wheels": true, "--find-links=https://example.com": true,
		"words": false, "Jinja2==3.1.6": false, "ruamel.yaml>=0.18": false, "words[fast]==1 \\": false, "--hash=sha256:1f": false, "words ; python_version < '3.13'": false,
		"words @ https://example.com/words-1.0.tar.gz": false, "https://example.com/words.whl": false, "git+https://example.com/words@main": false,
		"--index-url https://example.com/simple": false,
	} {
		if got := nearby.MatchString(line); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}

// The search for pip runs nothing of the plugin's.
func TestFindPython(t *testing.T) {
	python, err := filepath.Abs("../../../build/venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		runtimetest.Missing(t, "no Python with pip: run make deps")
	}
	t.Chdir(put(t, map[string]string{"pip.py": "raise SystemExit(1)"}))
	found, err := New(Config{Getenv: func(string) string { return python }}).findPython(t.Context())
	if err != nil || found != python {
		t.Errorf("%q, %v", found, err)
	}
}

// What pip says of packages that do not build has several forms.
func TestUnbuilt(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"  ERROR: Failed building wheel for Pillow\nFailed to build Pillow\nERROR: Could not build wheels for Pillow, which is required":   "Pillow",
		"error: failed-wheel-build-for-install\n\n× Failed to build installable wheels for some pyproject.toml based projects\n╰─> pillow": "pillow",
		"Collecting six\nCollecting numpy>=1 (from six)\n  error: subprocess-exited-with-error\nerror: metadata-generation-failed\n":       "numpy",
		"Successfully installed six": "",
	} {
		if got := strings.Join(unbuilt(said), " "); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

// What is native is refused by the name of its package, also where pip has installed it.
func TestCheckPure(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{
		"pure/__init__.py": "", "fast_thing/_speed.cpython-311-x86_64-linux-gnu.so": "",
		"quick-1.0.dist-info/RECORD": "fast_thing/_speed.cpython-311-x86_64-linux-gnu.so,sha256=x,1\n", "quick-1.0.dist-info/METADATA": "",
		"bin/quick": "", "pure/__pycache__/a.pyc": "",
	})
	if err := checkPure(dir); err == nil || !strings.HasPrefix(err.Error(), "quick has native code") {
		t.Errorf("%v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "fast_thing")); err != nil {
		t.Fatal(err)
	}
	if err := checkPure(dir); err != nil {
		t.Error(err)
	}
	if err := tidy(dir); err != nil {
		t.Fatal(err)
	}
	files, err := bundle.ReadFolder(dir, installed)
	if err != nil || len(files) != 2 || files["/app/site-packages/quick-1.0.dist-info/METADATA"] == nil {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// What cannot work in a plugin is told in one line, before pip has to build it, or of what another package brings.
func TestObstacles(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"numpy":                             "numpy has native code, which a plugin cannot load, and no version without: use the module statistics, or a plugin in Go or C",
		"Pillow>=10 ; python_version > '3'": "Pillow has native code, which a plugin cannot load, and no version without: resize and convert images in a plugin in Go",
		"psycopg[binary]==3.2.1":            "psycopg has native code, which a plugin cannot load, and no version without: use quern.database, and grant capabilities.sql in the manifest",
		"redis == 5.0":                      "redis needs sockets, which a plugin does not have: use quern.kv, and grant capabilities.kv in the manifest",
		"Scikit_Learn":                      "Scikit_Learn has native code, which a plugin cannot load, and no version without: use a plugin in Go or C",
		"requests==2.32":                    "", "numpy-financial": "", "pydantic==1.10.19": "", "--index-url https://example.com/numpy": "", "./numpy": "",
	} {
		if want != "" {
			want = "requirements.txt:2: " + want
		}
		err := checkRequired([]requirement{{"six", "requirements.txt:1"}, {line, "requirements.txt:2"}})
		if got := strings.TrimPrefix(errorText(err), "<nil>"); got != want {
			t.Errorf("%q: %q\nwant %q", line, got, want)
		}
	}
	for name, test := range map[string]struct{ warning, err string }{
		"requests": {"requests can be imported, but needs sockets, which a plugin does not have: use quern.http or urllib.request, and grant capabilities.http in the manifest", ""},
		"redis":    {"", "redis needs sockets, which a plugin does not have: use quern.kv, and grant capabilities.kv in the manifest"},
		"six":      {"", ""},
	} {
		files := map[string][]byte{installed + "/" + name + "-1.0.dist-info/METADATA": nil, installed + "/" + name + "/__init__.py": nil}
		warnings, err := checkInstalled(files)
		if got := strings.Join(warnings, "\n"); got != test.warning || strings.TrimPrefix(errorText(err), "<nil>") != test.err {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func errorText(err error) string { return fmt.Sprint(err) }

// Tests find the packages of the module in .quern/site-packages, after each build those of that build.
func TestKeepForTests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := filepath.Join(dir, ".quern", "site-packages")
	first := map[string][]byte{installed + "/six.py": []byte("1"), installed + "/yaml/__init__.py": nil}
	second := map[string][]byte{installed + "/six.py": []byte("2")}
	for _, packages := range []map[string][]byte{first, first, second} {
		if err := keepForTests(dir, packages); err != nil {
			t.Fatal(err)
		}
		got, err := bundle.ReadFolder(folder, installed)
		delete(got, installed+"/.gitignore")
		if err != nil || !maps.EqualFunc(got, packages, bytes.Equal) {
			t.Errorf("%q, %v, want %q", got, err, packages)
		}
	}
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(filepath.Join(folder, "six.pyc"), nil, 0o600), os.Chtimes(folder, old, old), keepForTests(dir, second)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(folder); err != nil || !info.ModTime().After(old) {
		t.Errorf("it is as old as before: %v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(folder, "six.pyc")); err != nil {
		t.Errorf("the same packages are written again: %v", err)
	}
	if err := keepForTests(dir, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("packages that the plugin no longer has are left")
	}
}

// What a link or a folder of the author's leads to is left alone.
func TestKeepForTestsElsewhere(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]string{"link above": ".quern", "link": ".quern/site-packages", "own folder": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, elsewhere := t.TempDir(), t.TempDir()
			precious := filepath.Join(elsewhere, "site-packages", "important.py")
			if place == "" {
				precious = filepath.Join(dir, ".quern", "site-packages", "important.py")
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(precious), 0o700), os.WriteFile(precious, []byte("1"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if place != "" {
				link := filepath.Join(dir, filepath.FromSlash(place))
				target := elsewhere
				if filepath.Base(place) == "site-packages" {
					target = filepath.Dir(precious)
				}
				if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(target, link)); err != nil {
					t.Fatal(err)
				}
			}
			for _, packages := range []map[string][]byte{nil, {installed + "/six.py": []byte("1")}} {
				if err := keepForTests(dir, packages); err != nil {
					t.Error(err)
				}
				left, err := os.ReadDir(filepath.Dir(precious))
				if err != nil || len(left) != 1 {
					t.Errorf("with %d packages: %v, %v", len(packages), left, err)
				}
			}
		})
	}
}

// A changed test needs no new module.
func TestNewerThanTests(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{
		"handler.py": "", "small.yaml": "", "requirements.txt": "", "lib/words.py": "", "test_handler.py": "", "lib/words_test.py": "", "conftest.py": "",
		"tests/data.json": "", "tests/test_more.py": "",
	})
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	built := time.Now()
	for name, newer := range map[string]bool{
		"test_handler.py": false, "lib/words_test.py": false, "conftest.py": false, "tests/data.json": false, "tests/test_more.py": false,
		"lib/words.py": true, "handler.py": true, "requirements.txt": true,
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.Chtimes(file, built, built.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if got := NewerFile(t.Context(), s, built); (got == file) != newer || !newer && got != "" {
			t.Errorf("%s: %q is newer", name, got)
		}
		if err := os.Chtimes(file, built, built); err != nil {
			t.Fatal(err)
		}
	}
}
