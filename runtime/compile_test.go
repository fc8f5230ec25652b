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
	"github.com/stretchr/testify/require"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/wasm"
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
			err = compileInto(ctx, engine, slow(), "slow")
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// newCode is the code of a module that is compiled as it is.
func newCode(engine *Engine, binary []byte) *machineCode {
	return engine.caches.code(&wasm.Rewritten{Binary: binary, Code: len(binary)}, Command)
}

// compileInto compiles a module as it is into the cache of an engine, and loads its code.
func compileInto(ctx context.Context, engine *Engine, binary []byte, digest string) error {
	c := newCode(engine, binary)
	err := c.hold(ctx, "", digest)
	if err == nil {
		c.release()
	}
	return errors.Join(err, c.close(context.WithoutCancel(ctx)))
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
			err := compileInto(t.Context(), engine, test.binary, "digest")
			refusedAs(t, err, test.want)
			err = compileInto(t.Context(), engine, test.binary, "copy")
			refusedAs(t, err, test.want)
			if got := strings.Count(log.String(), "compile child started"); got != 1 {
				t.Errorf("a copy of what was refused was compiled again: %d children", got)
			}
			if strings.Contains(log.String(), "WARN") || !strings.Contains(log.String(), test.logged) {
				t.Errorf("log:\n%s", log)
			}
			if entries := entriesOf(t, engine.caches.main.dir); len(entries) != 0 {
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
		m := newCode(engine, slow())
		defer func() { _ = m.source.close() }()
		v, err := engine.compiler.inChild(t.Context(), t.TempDir(), &m.program, b)
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
		err := compileInto(ctx, u.engine, slow(), "digest")
		u.ended <- err
	}()
	u.pid = log.pid(t)
	u.stage = compiling(t, u.engine.caches.main.dir)
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

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, 5*time.Millisecond, what)
}

// TestCompileTurns: while one owner's large modules are compiled and wait, in whatever number, there is a turn for
// another's small one; and children that are at work together have been given no more memory than all may have.
func TestCompileTurns(t *testing.T) {
	t.Parallel()
	c := newCompiler(Config{Guests: 8})
	take := func(ctx context.Context, owner string, code int) (func(), error) {
		return c.turns.Take(ctx, owner, c.budget(code).memory)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	errGone := errors.New("gone")
	large, err := take(t.Context(), "greedy", 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	for range 6 {
		go func() {
			_, err := take(gone, "greedy", 9<<20)
			waits <- err
		}()
	}
	for range 3 {
		small, err := take(t.Context(), "modest", smallCode)
		if err != nil {
			t.Fatal(err)
		}
		small()
	}
	cancel(errGone)
	for range 6 {
		if err := <-waits; !errors.Is(err, errGone) {
			t.Errorf("a second large module: %v, want it to wait", err)
		}
	}
	large()
	if large, err = take(t.Context(), "greedy", 9<<20); err != nil {
		t.Error(err)
	}
	large()
}

// TestCompileBudget: what a module may take grows with its code, up to what is set.
func TestCompileBudget(t *testing.T) {
	t.Parallel()
	c := newCompiler(Config{})
	small, audited, big := c.budget(16<<10), c.budget(84<<20/10), c.budget(60<<20)
	if small.memory != 576<<20 || small.processor < slowdown*4*time.Second || small.processor > slowdown*5*time.Second {
		t.Errorf("16 KiB: %+v", small)
	}
	if audited.memory != 1088<<20 || audited.processor < slowdown*50*time.Second {
		t.Errorf("8.4 MiB: %+v", audited)
	}
	if big.memory != DefaultCompileMemory || big.processor != slowdown*DefaultCompileTime {
		t.Errorf("60 MiB: %+v", big)
	}
	c = newCompiler(Config{CompileMemory: 1 << 20, CompileTime: time.Millisecond})
	if got := c.budget(26 << 20); got.memory != 1<<20 || got.processor != time.Second || got.wall < got.processor {
		t.Errorf("set: %+v", got)
	}
	release, err := c.turns.Take(t.Context(), "", c.budget(26<<20).memory)
	if err != nil {
		t.Fatal(err)
	}
	release()
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
	if err := (budget{}).refusal(verdict{End: endFailed, Text: disk.Error()}); err == nil || errors.As(err, &refused) {
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

// TestCompileChildKilled: who ends a child from outside ends one compilation.
func TestCompileChildKilled(t *testing.T) {
	t.Parallel()
	u := startSlow(t)
	if err := syscall.Kill(u.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	refusedAs(t, u.end(t), "compiling it was ended by a SIGKILL")
}

// TestCompileChildCancelled: when the load is given up, the child is gone before it returns.
func TestCompileChildCancelled(t *testing.T) {
	t.Parallel()
	u := startSlow(t)
	errGone := errors.New("gone")
	u.cancel(errGone)
	var refused *RefusedError
	if err := u.end(t); !errors.Is(err, errGone) || errors.As(err, &refused) {
		t.Errorf("compile = %v, want the cause and no refusal", err)
	}
	if err := syscall.Kill(u.pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child is still there: %v", err)
	}
}
