package compile

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
		err = Child(ctx, args, os.Stdin, os.Stdout)
	case childCrash:
		fmt.Println(`{"end":"ready"}`)
		panic("no such register\n\x1b[31m")
	case childHost:
		var cache *Cache
		logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: os.Stderr})
		if cache, err = open(ctx, Config{Dir: args[0], Child: compiledBy(childGood), Logger: logger}); err == nil {
			err = compileInto(ctx, cache, slow(), "slow")
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

// slow takes the compiler minutes: nested loops that each set one of many locals.
func slow() []byte {
	const depth, locals = 2000, 500
	var code []byte
	for i := range depth {
		local := runtimetest.Number(uint32(i % locals))
		code = append(append(append(code, 0x03, 0x40, 0x20), local...), 0x41, 1, 0x6a, 0x21)
		code = append(code, local...)
	}
	return runtimetest.Locals(locals, append(code, bytes.Repeat([]byte{0x20, 0, 0x0d, 0, 0x0b}, depth)...))
}

// large takes the compiler gigabytes: a function of millions of instructions.
func large() []byte {
	return runtimetest.Locals(1, bytes.Repeat([]byte{0x20, 0, 0x41, 1, 0x6a, 0x21, 0}, 4<<20))
}

func TestCompileChild(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	for i, children := range []int{1, 0} { // the second cache finds what the first has compiled
		cache, log := setupCompiler(t, Config{Dir: dir, Child: compiledBy(childGood)})
		code := newCode(cache, plain())
		if err := errors.Join(runs(t.Context(), code), code.Close(t.Context())); err != nil {
			t.Error(err)
		}
		if got := strings.Count(log.String(), "compile child started"); got != children || strings.Contains(log.String(), "WARN") {
			t.Errorf("cache %d started %d children, want %d:\n%s", i, got, children, log)
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
			cfg:    Config{Child: compiledBy(childGood)},
			binary: runtimetest.Locals(1, []byte{0x1a}), // drops what is not there
			want:   "not a valid WebAssembly module: ",
		},
		"ErrMemory": {
			cfg:    Config{Child: compiledBy(childGood), Memory: 64 << 20},
			binary: large(),
			want:   "compiling it takes more than 64MiB of memory",
		},
		"ErrTime": {
			cfg:    Config{Child: compiledBy(childGood), Time: time.Second},
			binary: slow(),
			want:   "compiling it takes more than 1s of processor time",
		},
		"ErrCrash": {
			cfg:    Config{Child: compiledBy(childCrash)},
			binary: plain(),
			want:   "the compiler crashed on it: panic: no such register",
			logged: "goroutine 1 [running]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache, log := setupCompiler(t, test.cfg)
			err := compileInto(t.Context(), cache, test.binary, "digest")
			refusedAs(t, err, test.want)
			err = compileInto(t.Context(), cache, test.binary, "copy")
			refusedAs(t, err, test.want)
			if got := strings.Count(log.String(), "compile child started"); got != 1 {
				t.Errorf("a copy of what was refused was compiled again: %d children", got)
			}
			if strings.Contains(log.String(), "WARN") || !strings.Contains(log.String(), test.logged) {
				t.Errorf("log:\n%s", log)
			}
			if entries := entriesOf(t, cache.main.dir); len(entries) != 0 {
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
			cache, log := setupCompiler(t, Config{Child: compiler})
			err := compileInto(t.Context(), cache, plain(), "digest")
			var refused *Error
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
		cache, _ := setupCompiler(t, Config{Child: compiledBy(childGood)})
		b := budget{memory: 1 << 30, processor: time.Hour, wall: time.Second}
		m := newCode(cache, slow())
		defer func() { _ = m.Close(t.Context()) }()
		v, err := cache.compiler.inChild(t.Context(), t.TempDir(), &m.program, b)
		if !errors.Is(err, errNoChild) {
			t.Errorf("a child without a processor: %v, %v, want an error of the host's", v, err)
		}
	})
}

// setupCompiler returns a cache in a directory of its own, and its log. When the test ends, no stage may be left.
func setupCompiler(t *testing.T, cfg Config) (cache *Cache, log *bytes.Buffer) {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "cache")
	}
	cache, log = setup(t, cfg)
	t.Cleanup(func() {
		if stages, err := fs.Glob(os.DirFS(cfg.Dir), stagePrefix+"*"); err != nil || len(stages) > 0 {
			t.Errorf("stages left: %v, %v", stages, err)
		}
	})
	return cache, log
}

// refusedAs fails the test if an error is not the refusal that is wanted.
func refusedAs(t *testing.T, err error, want string) {
	t.Helper()
	refused, ok := errors.AsType[*Error](err)
	if !ok || !strings.HasPrefix(refused.Reason, want) || refused.Remedy == "" {
		t.Fatalf("compile = %v, want a refusal: %s", err, want)
	}
}

// underway is a compilation of slow that has begun.
type underway struct {
	cache  *Cache
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
	u.cache, _ = setupCompiler(t, Config{Child: compiledBy(childGood), Logger: logger})
	var ctx context.Context
	ctx, u.cancel = context.WithCancelCause(t.Context())
	t.Cleanup(func() { u.cancel(nil) })
	go func() {
		err := compileInto(ctx, u.cache, slow(), "digest")
		u.ended <- err
	}()
	u.pid = log.pid(t)
	u.stage = compiling(t, u.cache.main.dir)
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

// patience is how long a test waits for what should be there at once.
const patience = 2 * time.Minute

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, 5*time.Millisecond, what)
}

// TestCompileTurns: while one owner's large modules are compiled and wait, in whatever number, there is a turn for
// another's small one; and children that are at work together have been given no more memory than all may have.
func TestCompileTurns(t *testing.T) {
	t.Parallel()
	c := newCompiler(Config{Children: 4})
	take := func(ctx context.Context, owner string, code int) (func(), error) {
		return c.turns.Acquire(ctx, owner, c.cfg.budget(code).memory)
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
	small, audited, big := c.cfg.budget(16<<10), c.cfg.budget(84<<20/10), c.cfg.budget(60<<20)
	if small.memory != 576<<20 || small.processor < slowdown*4*time.Second || small.processor > slowdown*5*time.Second {
		t.Errorf("16 KiB: %+v", small)
	}
	if audited.memory != 1088<<20 || audited.processor < slowdown*50*time.Second {
		t.Errorf("8.4 MiB: %+v", audited)
	}
	if big.memory != DefaultMemory || big.processor != slowdown*DefaultTime {
		t.Errorf("60 MiB: %+v", big)
	}
	c = newCompiler(Config{Memory: 1 << 20, Time: time.Millisecond})
	if got := c.cfg.budget(26 << 20); got.memory != 1<<20 || got.processor != time.Second || got.wall < got.processor {
		t.Errorf("set: %+v", got)
	}
	release, err := c.turns.Acquire(t.Context(), "", c.cfg.budget(26<<20).memory)
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
	var refused *Error
	if err := (budget{}).refusal(verdict{End: endFailed, Text: disk.Error()}); err == nil || errors.As(err, &refused) {
		t.Errorf("a full disk is %v, want an error of the host's", err)
	}
}

func TestCompileChildArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"1", "2"}, {"1", "2", "many"}, {"-1", "1", "1"}, {"1", "2", "3", "4"}} {
		var stdout bytes.Buffer
		if err := Child(t.Context(), args, strings.NewReader(""), &stdout); err == nil || stdout.Len() > 0 {
			t.Errorf("Child(%q) = %v, wrote %q", args, err, &stdout)
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
	var refused *Error
	if err := u.end(t); !errors.Is(err, errGone) || errors.As(err, &refused) {
		t.Errorf("compile = %v, want the cause and no refusal", err)
	}
	if err := syscall.Kill(u.pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child is still there: %v", err)
	}
}
