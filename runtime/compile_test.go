package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// The test binary is the compile child of its own tests: by its first argument it knows what to be.
const (
	childMode   = "child-"
	childGood   = childMode + "good"
	childCrash  = childMode + "crash"  // says that it is ready, then panics
	childSilent = childMode + "silent" // ends without a word
	childHost   = childMode + "host"   // is a host instead, with a cache in the folder that follows, and compiles slow
)

// beChild is the child's main; it returns the exit status.
func beChild(mode string, args []string) int {
	ctx := context.Background()
	var err error
	switch mode {
	case childGood:
		err = CompileChild(ctx, args, os.Stdin, os.Stdout)
	case childCrash:
		fmt.Println(`{"end":"ready"}`)
		panic("no such register\n\x1b[31m")
	case childHost:
		var engine *Engine
		logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: os.Stderr})
		if engine, err = newEngine(ctx, Config{CacheDir: args[0], Compiler: compiledBy(childGood), Logger: logger}, testVersion); err == nil {
			_, err = engine.newCode(ctx, slow(), "slow")
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func compiledBy(mode string) []string {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{program, mode}
}

// withBody is a module of one function with so many i32 locals.
func withBody(locals int, code []byte) []byte {
	body := append([]byte{1}, runtimetest.Number(uint32(locals))...)
	body = append(append(append(body, 0x7f), code...), 0x0b)
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, append(runtimetest.Number(uint32(len(body))), body...)),
	)
}

// slow takes the compiler minutes: nested loops that each set one of many locals.
func slow() []byte {
	const depth, locals = 2000, 500
	var code []byte
	for i := range depth {
		local := runtimetest.Number(uint32(i % locals))
		code = append(append(append(code, 0x03, 0x40, 0x20), local...), 0x41, 1, 0x6a, 0x21)
		code = append(code, local...)
	}
	return withBody(locals, append(code, bytes.Repeat([]byte{0x20, 0, 0x0d, 0, 0x0b}, depth)...))
}

// large takes the compiler gigabytes: a function of millions of instructions.
func large() []byte {
	return withBody(1, bytes.Repeat([]byte{0x20, 0, 0x41, 1, 0x6a, 0x21, 0}, 4<<20))
}

// setupCompiler returns an engine that compiles in children, its cache directory, and its log. When the
// test ends, no stage may be left.
func setupCompiler(t *testing.T, cfg Config) (engine *Engine, log *bytes.Buffer) {
	t.Helper()
	if cfg.CacheDir == "" {
		cfg.CacheDir = filepath.Join(t.TempDir(), "cache")
	}
	if cfg.Logger == nil {
		cfg.Logger, log = logTo(t)
	}
	engine, err := newEngine(t.Context(), cfg, testVersion)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if stages, err := fs.Glob(os.DirFS(cfg.CacheDir), stagePrefix+"*"); err != nil || len(stages) > 0 {
			t.Errorf("stages left: %v, %v", stages, err)
		}
		if err := engine.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return engine, log
}

// refusedAs fails the test if an error is not the refusal that is wanted.
func refusedAs(t *testing.T, err error, want string) {
	t.Helper()
	var refused *RefusedError
	if !errors.As(err, &refused) || len(refused.Refusals) != 1 || !strings.HasPrefix(refused.Refusals[0].What, want) {
		t.Fatalf("Load = %v, want a refusal: %s", err, want)
	}
	checkRefusals(t, refused.Refusals)
}

func TestCompileChild(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	for i, children := range []int{1, 0} { // the second engine finds what the first has compiled
		engine, log := setupCompiler(t, Config{CacheDir: dir, Compiler: compiledBy(childGood)})
		module := loadInto(t, engine, runtimetest.Echo(t))
		if got := complete(t, call(t, module, "hello", Limits{})); got != "hello" {
			t.Errorf("output = %q", got)
		}
		if got := strings.Count(log.String(), "compile child started"); got != children || strings.Contains(log.String(), "WARN") {
			t.Errorf("engine %d started %d children, want %d:\n%s", i, got, children, log)
		}
	}
}

func TestCompileChildRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cfg    Config
		binary []byte
		want   string
		logged string
	}{
		"ErrInvalid": {
			cfg:    Config{Compiler: compiledBy(childGood)},
			binary: command([]byte{0x1a}), // drops what is not there
			want:   "not a valid WebAssembly module: ",
		},
		"ErrMemory": {
			cfg:    Config{Compiler: compiledBy(childGood), CompileMemory: 64 << 20},
			binary: large(),
			want:   "compiling it takes more than 64MiB of memory",
		},
		"ErrTime": {
			cfg:    Config{Compiler: compiledBy(childGood), CompileTime: time.Second},
			binary: slow(),
			want:   "compiling it takes more than 1s of processor time",
		},
		"ErrCrash": {
			cfg:    Config{Compiler: compiledBy(childCrash)},
			binary: command(nil),
			want:   "the compiler crashed on it: panic: no such register",
			logged: "goroutine 1 [running]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, log := setupCompiler(t, test.cfg)
			_, err := engine.newCode(t.Context(), test.binary, "digest")
			refusedAs(t, err, test.want)
			_, err = engine.newCode(t.Context(), test.binary, "copy")
			refusedAs(t, err, test.want)
			if got := strings.Count(log.String(), "compile child started"); got != 1 {
				t.Errorf("a copy of what was refused was compiled again: %d children", got)
			}
			if strings.Contains(log.String(), "WARN") || !strings.Contains(log.String(), test.logged) {
				t.Errorf("log:\n%s", log)
			}
			if entries := entriesOf(t, engine.cache.dir); len(entries) != 0 {
				t.Errorf("entries = %v", entries)
			}
		})
	}
}

// TestCompileChildFaults: what is not the module's fault is no refusal, and never makes the host compile.
func TestCompileChildFaults(t *testing.T) {
	t.Parallel()
	for name, compiler := range map[string][]string{
		"ErrNoProgram": {filepath.Join(t.TempDir(), "none")},
		"ErrNotReady":  compiledBy(childSilent),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, log := setupCompiler(t, Config{Compiler: compiler})
			_, err := engine.Load(t.Context(), runtimetest.Echo(t))
			var refused *RefusedError
			if !errors.Is(err, errNoChild) || errors.As(err, &refused) {
				t.Errorf("Load = %v, want an error of the host's", err)
			}
			if strings.Contains(log.String(), "module compiled") {
				t.Errorf("log:\n%s", log)
			}
		})
	}
	t.Run("ErrBusy", func(t *testing.T) {
		t.Parallel()
		engine, _ := setupCompiler(t, Config{Compiler: compiledBy(childGood)})
		b := budget{memory: 1 << 30, processor: time.Hour, wall: time.Second}
		v, err := engine.compiler.inChild(t.Context(), t.TempDir(), slow(), "digest", b)
		if !errors.Is(err, errNoChild) {
			t.Errorf("a child without a processor: %v, %v, want an error of the host's", v, err)
		}
	})
}

// underway is a compilation of slow that has begun.
type underway struct {
	engine *Engine
	stage  string
	pid    int
	cancel context.CancelCauseFunc
	ended  chan error
}

func startSlow(t *testing.T) underway {
	t.Helper()
	log := make(lines, 100)
	u := underway{ended: make(chan error, 1)}
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: log})
	u.engine, _ = setupCompiler(t, Config{Compiler: compiledBy(childGood), Logger: logger})
	var ctx context.Context
	ctx, u.cancel = context.WithCancelCause(t.Context())
	t.Cleanup(func() { u.cancel(nil) })
	go func() {
		_, err := u.engine.newCode(ctx, slow(), "digest")
		u.ended <- err
	}()
	u.pid = log.pid(t)
	u.stage = compiling(t, u.engine.cache.dir)
	return u
}

func (u underway) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-u.ended:
		return err
	case <-time.After(patience):
		t.Fatal("compile does not return")
		return nil
	}
}

// lines is a log as it is written.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// pid waits for the line that says that a child has started.
func (l lines) pid(t *testing.T) int {
	t.Helper()
	for timeout := time.After(patience); ; {
		select {
		case line := <-l:
			if found := regexp.MustCompile(`compile child started: .*pid=(\d+)`).FindStringSubmatch(line); found != nil {
				pid, err := strconv.Atoi(found[1])
				if err != nil {
					t.Fatal(err)
				}
				return pid
			}
		case <-timeout:
			t.Fatal("no child started")
		}
	}
}

// compiling waits until a child is at work, which is when wazero has made its folder, and returns the stage.
func compiling(t *testing.T, dir string) string {
	t.Helper()
	var found []string
	eventually(t, "the child begins to compile", func() bool {
		found, _ = filepath.Glob(filepath.Join(dir, stagePrefix+"*", wazeroDirs))
		return len(found) > 0
	})
	return filepath.Dir(found[0])
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for timeout := time.After(patience); !holds(); {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("not before %v: %s", patience, what)
		}
	}
}

func TestCompileChildSlots(t *testing.T) {
	t.Parallel()
	c := newCompiler(Config{})
	var releases []func()
	for range cap(c.slots) {
		release, err := c.slot(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	errGone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	if _, err := c.slot(ctx, 0); !errors.Is(err, errGone) {
		t.Errorf("slot = %v, want the cause of the context", err)
	}
	releases[0]()
	if _, err := c.slot(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestCompileBudget: what a module may take grows with it.
// TestCompileChildLarge: of the slots, large modules take one at most.
func TestCompileChildLarge(t *testing.T) {
	t.Parallel()
	c := newCompiler(Config{})
	release, err := c.slot(t.Context(), largeModule)
	if err != nil {
		t.Fatal(err)
	}
	small, err := c.slot(t.Context(), largeModule-1)
	if err != nil {
		t.Fatal(err)
	}
	small()
	errGone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	if _, err := c.slot(ctx, largeModule); !errors.Is(err, errGone) {
		t.Errorf("a second large one: %v, want it to wait", err)
	}
	release()
	if _, err := c.slot(t.Context(), largeModule); err != nil {
		t.Error(err)
	}
}

func TestCompileBudget(t *testing.T) {
	t.Parallel()
	c := newCompiler(Config{})
	small, big := c.budget(16<<10), c.budget(26<<20)
	if small.memory != 576<<20 || small.processor < slowdown*4*time.Second || small.processor > slowdown*5*time.Second {
		t.Errorf("16 KiB: %+v", small)
	}
	if big.memory != 2176<<20 || big.processor != slowdown*160*time.Second {
		t.Errorf("26 MiB: %+v", big)
	}
	c = newCompiler(Config{CompileMemory: 1, CompileTime: time.Millisecond})
	if got := c.budget(26 << 20); got.memory != 1 || got.processor != time.Second || got.wall < got.processor {
		t.Errorf("set: %+v", got)
	}
}

func TestCompileVerdicts(t *testing.T) {
	t.Parallel()
	disk := &fs.PathError{Op: "write", Path: "entry", Err: errors.New("no space left on device")}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"OK":        {nil, endDone},
		"ErrText":   {errors.New("invalid byte"), endInvalid},
		"ErrDisk":   {fmt.Errorf("compile: %w", disk), endFailed},
		"ErrPanic":  {&panicError{value: "BUG"}, endCrash},
		"ErrMemory": {&panicError{value: syscall.ENOMEM}, endMemory},
	} {
		if got := verdictOf(test.err); got.End != test.want {
			t.Errorf("%s: %+v, want %s", name, got, test.want)
		}
	}
	var refused *RefusedError
	if err := (verdict{End: endFailed, Text: disk.Error()}).err(budget{}); err == nil || errors.As(err, &refused) {
		t.Errorf("a full disk is %v, want an error of the host's", err)
	}
}

func TestCompileChildArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"1", "2"}, {"1", "2", "many"}, {"-1", "1", "1"}, {"1", "2", "3", "4"}} {
		var stdout bytes.Buffer
		if err := CompileChild(t.Context(), args, strings.NewReader(""), &stdout); err == nil || stdout.Len() > 0 {
			t.Errorf("CompileChild(%q) = %v, wrote %q", args, err, &stdout)
		}
	}
}
