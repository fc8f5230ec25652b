package python_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
)

// venv is Python with pytest.
const venv = "../../build/venv/bin/python"

// installed is a folder with the package quern as pip installs it, which makes it a plugin of pytest.
func installed(t *testing.T) string {
	t.Helper()
	source, folder := t.TempDir(), t.TempDir() // the build leaves files beside the source
	if err := os.CopyFS(source, os.DirFS("package")); err != nil {
		t.Fatal(err)
	}
	command(t, exec.CommandContext(t.Context(), venv, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
		"--no-build-isolation", "--target", folder, source))
	if _, err := os.Stat(filepath.Join(folder, "quern", "py.typed")); err != nil {
		t.Error(err)
	}
	return folder
}

func command(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: run make deps if it is not installed\n%s", cmd, err, said)
	}
	return string(said)
}

// pytest runs the tests in a folder, with the package of another. They must pass.
func pytest(t *testing.T, folder, library string) string {
	t.Helper()
	return command(t, pytestCommand(t, folder, library))
}

func pytestCommand(t *testing.T, folder, library string) *exec.Cmd {
	t.Helper()
	python, err := filepath.Abs(venv)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-m", "pytest", "-p", "no:cacheprovider", "-q", ".")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "PYTHONPATH="+library, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// TestOwnPackages: tests import the packages that the plugin has, also those that a plugin of pytest has imported before in another
// version, as anyio's does typing_extensions. Without them it is an error if this Python has other ones.
func TestOwnPackages(t *testing.T) {
	t.Parallel()
	library := installed(t)
	for name, test := range map[string]struct {
		files map[string]string
		says  string
	}{
		"own": {map[string]string{
			"requirements.txt": "typing_extensions==0.1\nwords==1\n", ".quern/site-packages/typing_extensions.py": "VERSION = '0.1'\n",
			".quern/site-packages/words/__init__.py": "from typing_extensions import VERSION\n", ".quern/site-packages/dataclasses.py": "raise SystemError\n",
			"handler.py":  "import dataclasses, typing_extensions, words\ndef handle(task): return [typing_extensions.VERSION, words.VERSION]\n",
			"conftest.py": "pytest_plugins = 'quern.pytest_plugin'\n",
		}, "1 passed"},
		"none":    {map[string]string{"handler.py": "def handle(task): return ['0.1', '0.1']\n", "requirements.txt": "# nothing\n"}, "1 passed"},
		"equal":   {map[string]string{"handler.py": "def handle(task): return ['0.1', '0.1']\n", "requirements.txt": "-r more.txt\ntyping_extensions>=4 # as here\n"}, "1 passed"},
		"unbuilt": {map[string]string{"handler.py": "", "requirements.txt": "typing_extensions==4.0.0\nno-such-package\n"}, "requirements.txt: this Python has other packages than the plugin: typing_extensions is 4."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			test.files["test_handler.py"] = "from quern import testing\nimport handler\ndef test(): assert testing.run(handler.handle).json() == ['0.1', '0.1']\n"
			for name, text := range test.files {
				path := filepath.Join(folder, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			changed := time.Now().Add(-time.Minute)
			if err := os.Chtimes(filepath.Join(folder, "requirements.txt"), changed, changed); err != nil {
				t.Fatal(err)
			}
			said, err := pytestCommand(t, folder, library).CombinedOutput()
			if (err == nil) != strings.HasSuffix(test.says, "passed") || !strings.Contains(string(said), test.says) {
				t.Errorf("%v, want %s\n%s", err, test.says, said)
			}
			if name != "own" {
				return
			}
			changed = time.Now().Add(time.Minute)
			if err := os.Chtimes(filepath.Join(folder, "requirements.txt"), changed, changed); err != nil {
				t.Fatal(err)
			}
			said, err = pytestCommand(t, folder, library).CombinedOutput()
			if want := "requirements.txt has changed since .quern/site-packages was made from it: run: quern plugin build " + folder; err == nil || !strings.Contains(string(said), want) {
				t.Errorf("%v, want %s\n%s", err, want, said)
			}
		})
	}
}

// TestSeveralPlugins: each test imports the handler beside it, with the config and the variables of its manifest, however pytest is run.
func TestSeveralPlugins(t *testing.T) {
	t.Parallel()
	library, folder := installed(t), t.TempDir()
	conftest, err := os.ReadFile(filepath.Join("..", "..", "cmd", "quern", "plugin", "templates", "python", "conftest.py.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"invoice", "shop"} {
		for file, text := range map[string]string{
			"conftest.py": string(conftest), name + ".yaml": "name: " + name + "\nconfig:\n  url: https://" + name + ".example\ncapabilities: {env: {MODE: " + name + "}, kv: [{bucket: " + name + ", access: rw, quota: 1MiB}]}\n",
			"handler.py": "import os, quern, prices\nURL, MODE = quern.config('url'), os.environ['MODE']\ndef handle(task):\n" +
				"    import rates\n    return [URL, MODE, quern.config('url'), os.environ['MODE'], prices.OF, rates.OF]\n",
			"prices.py": "OF = '" + name + "'\n", "rates.py": "OF = '" + name + "'\n",
			"test_handler.py": "import handler, os\nfrom quern import testing\ndef test(quern_host):\n    url = 'https://" + name + ".example'\n    assert quern_host.kv == {'" + name + "': {}}\n" +
				"    assert testing.run(handler.handle).json() == [url, '" + name + "'] * 2 + ['" + name + "'] * 2\n" +
				"    assert testing.run(handler.handle, config={'url': 'other'}).json()[2] == 'other'\n",
		} {
			path := filepath.Join(folder, name, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, args := range [][]string{{"."}, {"invoice", "shop"}, {"--import-mode=importlib"}} {
		cmd := pytestCommand(t, folder, library)
		cmd.Args = append(cmd.Args[:len(cmd.Args)-1], args...)
		if said := command(t, cmd); !strings.Contains(said, "\n2 passed") {
			t.Errorf("%q: %s", args, said)
		}
		cmd = pytestCommand(t, folder, filepath.Join(library, "..")) // without the entry point: the copy beside the plugin
		cmd.Args = append(cmd.Args[:len(cmd.Args)-1], args...)
		for _, name := range []string{"invoice", "shop"} {
			if err := os.MkdirAll(filepath.Join(folder, name, ".quern"), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(library, "quern"), filepath.Join(folder, name, ".quern", "quern")); err != nil && !errors.Is(err, os.ErrExist) {
				t.Fatal(err)
			}
		}
		if said := command(t, cmd); !strings.Contains(said, "\n2 passed") {
			t.Errorf("%q without an installed package: %s", args, said)
		}
	}
}

// TestPackage runs the package's own tests.
func TestPackage(t *testing.T) {
	t.Parallel()
	if said := pytest(t, filepath.Join("package", "tests"), installed(t)); !strings.Contains(said, " passed") {
		t.Error(said)
	}
}

// TestREADMETests runs the tests that the README shows, of the handler that it shows.
func TestREADMETests(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Tests of a plugin\n")
	section, _, _ = strings.Cut(section, "\n## ")
	folder := t.TempDir()
	for _, block := range regexp.MustCompile("(?s)`(\\w+\\.(?:py|yaml))`:\n\n```(?:python|yaml)\n(.*?)```").FindAllStringSubmatch(section, -1) {
		if err := os.WriteFile(filepath.Join(folder, block[1]), []byte(block[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if said := pytest(t, folder, installed(t)); !strings.Contains(said, "\n4 passed") {
		t.Error(said)
	}
}

// TestDenialsInTests: pytest denies what a host denies of this manifest, with its words.
func TestDenialsInTests(t *testing.T) {
	t.Parallel()
	const capabilities = `
  kv:
  - bucket: read  # to read
  - {bucket: all, access: rw}
  secrets: [key]
  sql: [{database: shop}]
  http:
    - host: "https://api.example.com"
      methods:
      - GET
    - {host: https://*.b.example:444, methods: [GET, POST]}
  enqueue:
    queues: ["mail.*", 'print']
    after: call
`
	folder := t.TempDir()
	client := egress.New(egress.Config{Answer: func(service.Request) (service.Response, error) { return service.Response{}, nil }})
	t.Cleanup(client.Close)
	for i, text := range []string{"name: shop\n", "name: shop\ncapabilities:" + capabilities} {
		m, err := manifest.Parse("shop.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		p := manifest.NewPermissions(&m, nil, "acme", nil)
		var calls, want []string
		add := func(err error, call string, args ...any) {
			said := ""
			if err != nil {
				said = err.Error()
			}
			for i, arg := range args {
				args[i] = strings.NewReplacer("true", "True", "false", "False").Replace(fmt.Sprintf("%#v", arg))
			}
			calls, want = append(calls, fmt.Sprintf("manifest."+call, args...)), append(want, said)
		}
		for _, name := range []string{"read", "all", "other", "key", "shop", "mail.a", "print", "mail"} {
			add(p.DenyBucket(name, false), "bucket(%s, %s)", name, false)
			add(p.DenyBucket(name, true), "bucket(%s, %s)", name, true)
			add(p.DenySecret(name), "secret(%s)", name)
			_, err := p.Database(name)
			add(err, "database(%s)", name)
			add(p.DenyQueue(name), "queue(%s)", name)
			add(p.DenyTopic(name), "topic(%s)", name)
		}
		for _, url := range []string{"https://api.example.com", "http://api.example.com", "https://b.example:444", "https://a.B.example:444", "http://[::1]:80", "http://[::1]:81"} {
			for _, method := range []string{"GET", "POST"} {
				_, err := client.For("acme", p.Capabilities.HTTP, nil).Do(t.Context(), service.Request{Method: method, URL: url + "/a"})
				if err != nil {
					_, why, _ := strings.Cut(err.Error(), ": denied: ")
					err = errors.New("denied: " + why)
				}
				add(err, "request(%s, %s)", method, url+"/a")
			}
		}
		path := filepath.Join(folder, fmt.Sprintf("shop%d.yaml", i))
		script := "import json, sys\nsys.path.insert(0, 'package/src')\nfrom pathlib import Path\nfrom quern import _manifest\nmanifest = _manifest.read(Path(sys.argv[1]))\n" +
			"print(json.dumps([" + strings.Join(calls, ",\n") + "]))"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := json.Unmarshal([]byte(command(t, exec.CommandContext(t.Context(), venv, "-B", "-c", script, path))), &got); err != nil {
			t.Fatal(err)
		}
		denied := 0
		for j, call := range calls {
			if got[j] != want[j] {
				t.Errorf("%s: %q, want %q", call, got[j], want[j])
			}
			if want[j] != "" {
				denied++
			}
		}
		if denied == 0 || i > 0 && denied == len(calls) {
			t.Errorf("%d of %d are denied", denied, len(calls))
		}
	}
}

// TestManifestsOfExamples: tests can read every manifest of the repository.
func TestManifestsOfExamples(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(found) < 10 {
		t.Fatal(len(found), err)
	}
	script := "import sys\nsys.path.insert(0, 'package/src')\nfrom pathlib import Path\nfrom quern import _manifest\nfor path in sys.argv[1:]: _manifest.read(Path(path))"
	command(t, exec.CommandContext(t.Context(), venv, append([]string{"-B", "-c", script}, found...)...))
}

// TestRefusedPackages: a handler imports no package that the build refuses, also if this Python has it; tests may.
func TestRefusedPackages(t *testing.T) {
	t.Parallel()
	library, folder := installed(t), t.TempDir()
	for name, text := range map[string]string{
		"shop/handler.py": "def handle(task):\n    import orjson\n", "numpy.py": "", "orjson.py": "", "shop/shop.yaml": "name: shop\n",
		"shop/conftest.py": "pytest_plugins = 'quern.pytest_plugin'\n",
		"shop/test_handler.py": "import numpy\nfrom quern import testing\nimport handler\ndef test():\n" +
			"    assert testing.run(handler.handle).error == \"ModuleNotFoundError: No module named 'orjson': orjson has native code, which a plugin cannot load, and no version without: use the module json\"\n",
	} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if said := pytest(t, filepath.Join(folder, "shop"), library+string(os.PathListSeparator)+folder); !strings.Contains(said, "1 passed") {
		t.Error(said)
	}
}
