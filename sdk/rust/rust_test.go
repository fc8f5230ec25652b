package rust_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// cargo runs cargo on a crate, with its rustc and rustdoc, and returns the folder with what it built.
func cargo(t testing.TB, crate string, args ...string) string {
	t.Helper()
	target, err := tryCargo(t, crate, args...)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func tryCargo(t testing.TB, crate string, args ...string) (target string, err error) {
	t.Helper()
	if target, err = filepath.Abs("../../build/rust"); err != nil {
		return "", err
	}
	tools := runtimetest.Cargo(t)
	cmd := exec.CommandContext(t.Context(), tools["CARGO"], append(args, "--quiet", "--locked")...)
	cmd.Dir = crate
	cmd.Env = append(os.Environ(), "RUSTC="+tools["RUSTC"], "RUSTDOC="+filepath.Join(filepath.Dir(tools["RUSTC"]), "rustdoc"),
		"CARGO_TARGET_DIR="+target)
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cargo %s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return target, nil
}

// build builds a handler of testdata for a target, and returns the module.
func build(t testing.TB, crate, target string, args ...string) []byte {
	t.Helper()
	return buildIn(t, filepath.Join("testdata", crate), crate, target, args...)
}

func buildIn(t testing.TB, dir, crate, target string, args ...string) []byte {
	t.Helper()
	folder := cargo(t, dir, append([]string{"build", "--release", "--target=" + target}, args...)...)
	module, err := os.ReadFile(filepath.Join(folder, target, "release", crate+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// bind loads a handler, and makes a pool of it.
func bind(t testing.TB, binary []byte) *runtime.Pool {
	t.Helper()
	engine, err := runtime.New(t.Context(), runtime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(t.Context()) })
	module, err := engine.Load(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	pool := module.Bind(runtime.Profile{Tenant: "tenant", Config: map[string]string{"greeting": "Good morning"}})
	t.Cleanup(pool.Close)
	return pool
}

// The crate's own tests, and its examples.
func TestCargo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("each example is compiled alone")
	}
	cargo(t, "testdata/hello", "test", "--package=quern")
}

// maxHello bounds a small handler, in bytes.
const maxHello = 30 << 10

// A small handler is small, and what becomes of it is the outcome, a panic with its message and place.
func TestHello(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"wasm32-unknown-unknown", runtimetest.RustWASI(t)} {
		binary := build(t, "hello", target)
		if target == "wasm32-unknown-unknown" && len(binary) > maxHello {
			t.Errorf("it has %d bytes, want %d at most", len(binary), maxHello)
		}
		pool := bind(t, binary)
		for input, want := range map[string]string{
			"Ada":      "complete: : Good morning, Ada!",
			"":         "fatal: no name: ",
			"\xff":     "fatal: the input is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0: ",
			"progress": "failed: progress: invalid: NaN: use 0 to 1, such as 0.5 (EINVAL): ",
			"number":   "failed: invalid digit found in string: ",
			"panic":    "trap: unreachable (the program aborted or panicked): panicked at src/lib.rs:11:20: no ink for Good morning: ",
		} {
			got := pool.Run(t.Context(), runtime.Call{TaskID: "task", Input: []byte(input)})
			if text := string(got.Kind) + ": " + got.Message + ": " + string(got.Output); text != want {
				t.Errorf("%s of %q: %s, want %s", target, input, text, want)
			}
		}
	}
}

// A panic before the first task is each task's error.
func TestStartPanics(t *testing.T) {
	t.Parallel()
	got := bind(t, build(t, "unlucky", "wasm32-unknown-unknown")).Run(t.Context(), runtime.Call{})
	if want := "error: panicked at src/lib.rs:6:5: no paper"; !strings.HasPrefix(got.Message, "before its first task: ") || !strings.HasSuffix(got.Message, want) {
		t.Errorf("%s, want %s", got.Message, want)
	}
}

// With the feature serde, input and result are JSON.
func TestSerde(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("serde is compiled for long")
	}
	crates, err := filepath.Abs("../../build/crates")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(crates, "installed.lock")); err != nil {
		runtimetest.Missing(t, err.Error()+": run make deps")
	}
	pool := bind(t, build(t, "order", "wasm32-unknown-unknown", "--config", `source.crates-io.replace-with="vendored"`,
		"--config", fmt.Sprintf("source.vendored.directory=%q", filepath.Join(crates, "vendor"))))
	var log []string
	call := runtime.Call{TaskID: "task", Input: []byte(`{"id":"a","lines":[{"quantity":2,"price":9.5},{"quantity":1,"price":0.25}]}`)}
	call.Log = func(line string) { log = append(log, line) }
	if got := pool.Run(t.Context(), call); string(got.Output) != `{"id":"a","total":19.25}` {
		t.Errorf("%s %s: %s", got.Kind, got.Message, got.Output)
	}
	if want := `added {"order":"a","lines":[2]}`; len(log) != 1 || !strings.HasSuffix(log[0], want) {
		t.Errorf("log %q, want %q", log, want)
	}
	t.Run("Database", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Shared(t).Database(t)
		databases := sql.New(sql.Config{})
		t.Cleanup(databases.Close)
		run := databases.For(taskOn(url))
		defer run.Close()
		call := runtime.Call{TaskID: "task", Input: []byte(`{"id":"stored","lines":[{"quantity":2,"price":9.5}]}`)}
		call.Services.SQL = run
		if got := pool.Run(t.Context(), call); string(got.Output) != `{"id":"stored Some(Json(None)) None","total":19.0}` {
			t.Errorf("%s %s: %s", got.Kind, got.Message, got.Output)
		}
	})
	got := pool.Run(t.Context(), runtime.Call{TaskID: "task", Input: []byte(`{"id":`)})
	if got.Kind != runtime.Fatal || !strings.Contains(got.Message, "the input is not the expected JSON: EOF while parsing") {
		t.Errorf("%s: %s", got.Kind, got.Message)
	}
}

// crate makes a crate like hello, with another name and source, and returns its folder.
func crate(t *testing.T, name, source string) string {
	t.Helper()
	dir := t.TempDir()
	sdk, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.NewReplacer(`name = "hello"`, `name = "`+name+`"`, `"../.."`, `"`+filepath.ToSlash(sdk)+`"`)
	for _, file := range []string{"Cargo.toml", "Cargo.lock"} {
		text, err := os.ReadFile(filepath.Join("testdata", "hello", file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), []byte(renamed.Replace(string(text))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err = os.Mkdir(filepath.Join(dir, "src"), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "src", "lib.rs"), []byte("use quern::{Error, Task};\n"+source), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

const (
	twoHandlers   = `the name .a_plugin_has_one_handler_so_remove_a_quern_handler_attribute. is defined multiple times`
	returnsResult = `a handler returns a Result: expected -> Result<String, Error>\n --> src/lib.rs:3:`
)

// A handler that is none is told at the attribute, with what is expected.
func TestHandlerErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ source, says string }{
		"two":      {"#[quern::handler]\nfn a(_: Task) -> Result<(), Error> { Ok(()) }\n#[quern::handler]\nfn b(_: Task) -> Result<(), Error> { Ok(()) }\n", twoHandlers},
		"modules":  {"#[quern::handler]\nfn a(_: Task) -> Result<(), Error> { Ok(()) }\nmod b {\n#[quern::handler]\nfn b(_: super::Task) -> Result<(), super::Error> { Ok(()) }\n}\n", twoHandlers},
		"async":    {"#[quern::handler]\nasync fn a(_: Task) -> Result<(), Error> { Ok(()) }\n", `a handler is not async: `},
		"item":     {"#[quern::handler]\nstruct A;\n", `#\[quern::handler\] belongs on a function: fn handle\(task: Task\) -> Result<String, Error>`},
		"generic":  {"#[quern::handler]\nfn a<T>(_: T) -> Result<(), Error> { Ok(()) }\n", `a handler has no type parameters: expected fn\(task: Task\)`},
		"started":  {"#[quern::handler(load)]\nfn a(_: Task) -> Result<(), Error> { Ok(()) }\n", `expected #\[quern::handler\] or #\[quern::handler\(start = FUNCTION\)\]`},
		"quoted":   {"fn load() {}\n#[quern::handler(start = \"load\")]\nfn a(_: Task) -> Result<(), Error> { Ok(()) }\n", `expected the function's name without quotation marks: #\[quern::handler\(start = load\)\]\n --> src/lib.rs:3:`},
		"starts":   {"fn load() -> Result<(), Error> { Ok(()) }\n#[quern::handler(start = load)]\nfn a(_: Task) -> Result<(), Error> { Ok(()) }\n", `src/lib.rs:3:[\s\S]*expected .*\(\).*found .*Result`},
		"taskless": {"#[quern::handler]\nfn a() -> Result<(), Error> { Ok(()) }\n", `a handler gets the task: expected \(task: Task\)\n --> src/lib.rs:3:5`},
		"status":   {"#[quern::handler]\nfn a(_: Task) -> i32 { 0 }\n", returnsResult},
		"nothing":  {"#[quern::handler]\nfn a(_: Task) {}\n", returnsResult},
		"unit":     {"#[quern::handler]\nfn a(_: Task) -> () {}\n", returnsResult},
		"text":     {"#[quern::handler]\nfn a(_: Task) -> String { String::new() }\n", returnsResult},
		"slice":    {"#[quern::handler]\nfn a(_: Task) -> &'static str { \"\" }\n", returnsResult},
		"alias":    {"type A = String;\n#[quern::handler]\nfn a(_: Task) -> A { String::new() }\n", "src/lib.rs:[34]:[\\s\\S]*Result<_, (quern::)?Error>"},
		"number":   {"#[quern::handler]\nfn a(_: Task) -> Result<u32, Error> { Ok(1) }\n", "Output. is not implemented for .u32."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := tryCargo(t, crate(t, "wrong-"+name, test.source), "check"); err == nil || !regexp.MustCompile(test.says).MatchString(err.Error()) {
				t.Errorf("%v, want %s", err, test.says)
			}
		})
	}
}

// The clocks that std lacks are told with those to use.
func TestClocks(t *testing.T) {
	t.Parallel()
	dir := crate(t, "clocks", "#[quern::handler]\nfn a(_: Task) -> Result<String, Error> { Ok(format!(\"{:?}\", std::time::Instant::now())) }\n")
	got := bind(t, buildIn(t, dir, "clocks", "wasm32-unknown-unknown")).Run(t.Context(), runtime.Call{TaskID: "task"})
	if want := "time not implemented on this platform: use quern::now or quern::monotonic"; !strings.HasSuffix(got.Message, want) {
		t.Errorf("%s, want %s", got.Message, want)
	}
}

// What README.md tells of the keys of a HashMap: they differ from task to task where std has random numbers.
func TestHashKeys(t *testing.T) {
	t.Parallel()
	dir := crate(t, "hashes", "use std::hash::{BuildHasher, Hasher};\n#[quern::handler]\nfn a(_: Task) -> Result<String, Error> {\n"+
		"    Ok(std::collections::hash_map::RandomState::new().build_hasher().finish().to_string())\n}\n")
	for target, differ := range map[string]bool{"wasm32-unknown-unknown": false, runtimetest.RustWASI(t): true} {
		pool, seen := bind(t, buildIn(t, dir, "hashes", target)), map[string]bool{}
		for range 3 {
			got := pool.Run(t.Context(), runtime.Call{TaskID: "task"})
			if got.Kind != runtime.Complete {
				t.Fatalf("%+v", got)
			}
			seen[string(got.Output)] = true
		}
		if len(seen) > 1 != differ {
			t.Errorf("%s: hashes %v", target, seen)
		}
	}
}

// Results of other names are results.
func TestHandlerForms(t *testing.T) {
	t.Parallel()
	for i, source := range []string{
		"type Ended = Result<(), Error>;\nmod inner { pub fn load() {} }\n#[quern::handler(start = inner::load)]\npub(crate) fn a(_task: Task) -> Ended { Ok(()) }\n",
		"#[quern::handler]\npub fn a(mut _task: quern::Task) -> std::result::Result<&'static str, Error> { Ok(\"\") }\n",
		"#[quern::handler]\nfn a(_: Task) -> ::std::result::Result<Vec<u8>, Error> { Ok(Vec::new()) }\n",
	} {
		cargo(t, crate(t, fmt.Sprintf("forms-%d", i), source), "check")
	}
}

// BenchmarkHello is what a task of a small handler costs.
func BenchmarkHello(b *testing.B) {
	pool, call := bind(b, build(b, "hello", "wasm32-unknown-unknown")), runtime.Call{TaskID: "task", Input: []byte("Ada")}
	if got := pool.Run(b.Context(), call); got.Kind != runtime.Complete {
		b.Fatalf("%+v", got)
	}
	b.ReportAllocs()
	b.ResetTimer()
	begun := processor(b)
	for b.Loop() {
		pool.Run(b.Context(), call)
	}
	b.ReportMetric(float64((processor(b)-begun).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// processor is the processor time of this process, which other work on the machine changes less than the time.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
