package python_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime"
)

// Packages that nobody here wrote: pure wheels, and those that PyPI has only as sources or for processors, which are built
// without their optional native part.
var (
	wheels  = []string{"Jinja2==3.1.4", "Markdown==3.7", "attrs==24.2.0", "pydantic==1.10.19", "python-dateutil==2.9.0.post0", "six==1.16.0", "typing_extensions==4.12.2"}
	sources = []string{"MarkupSafe==2.1.5", "PyYAML==6.0.2"}
)

// packages installs them once, into build/test, and returns their files below /app/site-packages.
func packages(t *testing.T) map[string]string {
	t.Helper()
	all := strings.Join(append(append([]string{}, wheels...), sources...), "\n")
	folder := filepath.Join("..", "..", "build", "test", "python-packages")
	installed := filepath.Join(folder, "installed")
	if got, err := os.ReadFile(installed); err != nil || string(got) != all {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		pip(t, folder, nil, append([]string{
			"--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none", "--python-version=3.11",
		}, wheels...))
		pip(t, folder, []string{"CC=false"}, append([]string{"--no-binary=MarkupSafe,PyYAML"}, sources...))
		if err := os.WriteFile(installed, []byte(all), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	contents, err := tree(folder, "site-packages")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for name, content := range contents {
		if strings.HasSuffix(name, ".so") {
			t.Fatalf("%s is native code", name)
		}
		files[name] = string(content)
	}
	return files
}

func pip(t *testing.T, folder string, env, arguments []string) {
	t.Helper()
	python := filepath.Join("..", "..", "build", "venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		python = "python3"
	}
	cmd := exec.CommandContext(t.Context(), python, append([]string{
		"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--target", folder,
	}, arguments...)...)
	cmd.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("pip could not install packages, with the pip of make deps: %v\n%s", err, &said)
	}
}

// TestPackages runs real packages in one handler, which imports them before the snapshot.
func TestPackages(t *testing.T) {
	need(t)
	source, err := os.ReadFile("testdata/packages/handler.py")
	if err != nil {
		t.Fatal(err)
	}
	files := packages(t)
	maps.Copy(files, map[string]string{"handler.py": string(source)})
	p := setup(t, files, runtime.Profile{})
	for name, want := range map[string]string{
		"jinja2":   "<ul><li>a &lt;b&gt;</li><li>c</li></ul>",
		"markdown": "<h1>Title</h1>\n<p>Some <em>text</em>.</p>",
		"yaml":     `{"a":[1,2.5,"x"],"d":"2026-01-02"}`,
		"dateutil": `["2026-03-01","2026-01-31"]`,
		"attrs":    `{"name":"x","size":3}`,
		"pydantic": `{"id":7,"tags":["a"],"at":"2026-01-02T03:04:05"}`,
		"invalid":  "1 validation error for Order\nid\n  value is not a valid integer (type=type_error.integer)",
	} {
		r := p.run(t, name)
		if got := string(r.Output); r.Kind != runtime.Complete || got != want {
			t.Errorf("%s: %s %s\n%s\nwant\n%s\n%s", name, r.Kind, r.Message, got, want, r.logged())
		}
		t.Logf("%s: fuel %d, cpu %v", name, r.Fuel, r.CPU)
	}
}
