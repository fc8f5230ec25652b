package compile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/turns"
	"github.com/quern-project/quern/runtime/units"
)

// The budget of a module depends on the size of its code: the rest of a file costs the compiler almost nothing. The
// following was measured; memory is the address space beyond that of a new process.
//
//	                           code       time      memory
//	an empty Go program       1.5 MiB     1.9 s     76 MiB
//	gofmt                     3.0 MiB     4.3 s     89 MiB
//	CPython 3.12              5.9 MiB    10.5 s    176 MiB
//	a MiB in one function     1.0 MiB   3 to 13 s   0.7 to 3.9 GiB
//
// So the base is enough for one large function, and the additional budget for many functions, also on slower machines.
const (
	baseTime     = 4 * time.Second // of processor time
	timePerMiB   = 6 * time.Second
	baseMemory   = 512 << 20 // of address space, beyond that of a new process
	memoryPerMiB = 64 << 20
)

// The maximum budget of a module if Config sets none. Go's compiler, with 31 MiB of code, took 97 s and 1.2 GiB.
const (
	DefaultTime         = 3 * time.Minute
	DefaultMemory int64 = 1280 << 20
)

// smallCode is the maximum size of the code of a small module, in bytes.
const smallCode = 1 << 20

// maxLoading is the maximum size in bytes of all modules that are loaded from the cache at once.
const maxLoading = 256 << 20

const (
	childWait = 5 * time.Second // how long to wait for pipes that descendants of an ended child keep open
	maxStage  = time.Hour       // the age at which a stage is removed; longer than any compilation
)

// compiler compiles modules into stages, each in a child process: wazero's compiler can take any time and memory for a
// small module, ignores its context, and ends the process if there is no memory.
//
//	host                                 child (the same program, in the stage, without environment)
//	 │── start ─────────────────────────▶ limits itself: address space, processor time, no core dump
//	 │◀──────────────────────── ready ───│
//	 │── the module, on stdin ──────────▶ compiles; wazero writes the entry into the stage
//	 │◀──────── done, invalid, crash ... │
//
// If a child ends without a verdict, the refusal says how the child died.
type compiler struct {
	cfg   Config
	turns *turns.Turns // for compiling; the weight is memory
	loads *turns.Turns // for loading from the cache; the weight is the size of a module

	mu      sync.Mutex
	closed  bool
	refused map[string]refusal       // recent refusals, by key
	claims  map[string]chan struct{} // compilations in progress, by key; closed when they end
}

// refusal says why a module was refused. It is remembered, so that a folder full of copies takes no longer than one
// copy.
type refusal struct {
	err   *Error
	until time.Time // when the refusal is forgotten
}

// rememberFor is the time for which a refused module is not compiled again. After that it is tried again, since the
// machine may have been slow.
const rememberFor = 10 * time.Minute

// newCompiler makes a compiler that compiles at most cfg.Children modules at once, at least two, plus one small module.
func newCompiler(cfg Config) *compiler {
	if cfg.Time <= 0 {
		cfg.Time = slowdown * DefaultTime
	}
	if cfg.Memory <= 0 {
		cfg.Memory = DefaultMemory
	}
	small := cfg.budget(smallCode).memory
	return &compiler{
		cfg: cfg, refused: map[string]refusal{}, claims: map[string]chan struct{}{},
		loads: turns.New(turns.Config{Places: max(2, goruntime.GOMAXPROCS(0)), Room: maxLoading}),
		turns: turns.New(turns.Config{Places: max(2, cfg.Children), Room: 2*cfg.Memory - small, Small: small}),
	}
}

// remembered returns the recent refusal of a module, or nil if there is none.
func (c *compiler) remembered(key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.refused[key]; ok && time.Now().Before(r.until) {
		return r.err
	}
	return nil
}

func (c *compiler) remember(key string, err *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.refused, func(_ string, r refusal) bool { return now.After(r.until) })
	c.refused[key] = refusal{err: err, until: now.Add(rememberFor)}
}

// claim claims the compilation of a module for the caller, who calls done at the end of the compilation. If another
// caller has claimed it, claim returns other, which is closed when that caller's compilation ends.
func (c *compiler) claim(key string) (done func(), other <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	if other, claimed := c.claims[key]; claimed {
		return nil, other, nil
	}
	ended := make(chan struct{})
	c.claims[key] = ended
	return func() {
		c.mu.Lock()
		delete(c.claims, key)
		c.mu.Unlock()
		close(ended)
	}, nil, nil
}

// close makes further claims fail.
func (c *compiler) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// budget bounds a compilation.
type budget struct {
	memory    int64         // maximum address space beyond that of a new process, in bytes
	processor time.Duration // maximum processor time
	wall      time.Duration // until the child is killed; longer than processor, since the child's priority is low
}

// budget returns the budget of a module that has code bytes of code.
func (c Config) budget(code int) budget {
	b := budget{
		memory:    min(c.Memory, baseMemory+memoryPerMiB*int64((code+1<<20-1)>>20)),
		processor: min(c.Time, slowdown*(baseTime+timePerMiB*time.Duration(code)/(1<<20))),
	}
	b.processor = (b.processor + time.Second - 1).Truncate(time.Second) // the system counts in seconds
	b.wall = max(b.processor, min(10*b.processor, maxStage/2))
	return b
}

// compile makes wazero write a module's entry into a stage. An *Error is the module's fault, any other error the
// host's.
func (c *compiler) compile(ctx context.Context, stage string, p *program, b budget) error {
	started := time.Now()
	var v verdict
	var err error
	if c.cfg.Child == nil {
		var binary []byte
		if binary, err = p.source.read(); err == nil {
			v = verdictOf(compileIn(ctx, stage, binary))
		}
	} else {
		v, err = c.inChild(ctx, stage, p, b)
	}
	if err != nil {
		return err
	}
	if v.End == endCrash {
		c.cfg.Logger.Debug("compiler crashed", "digest", p.digest, "output", v.Text)
	}
	if err := b.refusal(v); err != nil {
		if refused, ok := errors.AsType[*Error](err); ok && v.End != endKilled {
			c.remember(p.key, refused)
		}
		return err
	}
	c.cfg.Logger.Debug("module compiled", "digest", p.digest, "size", p.source.size, "duration", time.Since(started))
	return nil
}

// inChild starts a child, hands it the module, waits for its end, and returns its verdict.
func (c *compiler) inChild(ctx context.Context, stage string, p *program, b budget) (verdict, error) {
	// Linux kills the child when the thread that started it ends. That is meant for the end of the host, so this call
	// keeps the thread.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	bounded, cancel := context.WithTimeout(ctx, b.wall)
	defer cancel()
	cmd := exec.CommandContext(bounded, c.cfg.Child[0], append(slices.Clip(c.cfg.Child[1:]),
		strconv.FormatInt(b.memory, 10), strconv.FormatInt(int64(b.processor/time.Second), 10),
		strconv.FormatInt(p.source.size, 10))...)
	var stdout, stderr head
	cmd.Dir = stage
	cmd.Env = []string{} // not the host's environment
	cmd.Stdin, cmd.Stdout, cmd.Stderr = io.NewSectionReader(p.source, 0, p.source.size), &stdout, &stderr
	cmd.SysProcAttr = childAttributes()
	cmd.Cancel = func() error { // kills the child with its descendants
		return errors.Join(syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL), cmd.Process.Kill())
	}
	cmd.WaitDelay = childWait
	err := cmd.Start()
	if err == nil {
		c.cfg.Logger.Debug("compile child started", "digest", p.digest, "pid", cmd.Process.Pid)
		err = cmd.Wait()
	}
	v, ready := lastVerdict(stdout.text)
	switch {
	case v.End != "":
		return v, nil
	case ctx.Err() != nil:
		return verdict{}, context.Cause(ctx)
	case !ready:
		return verdict{}, fmt.Errorf("%w: run %q: %w: %s", errNoChild, c.cfg.Child, err,
			redact.Label(redact.FirstLine(string(stderr.text))))
	case bounded.Err() != nil && !b.spent(cmd.ProcessState):
		return verdict{}, fmt.Errorf("%w: the machine is too busy: it got %v of processor time in %v",
			errNoChild, processorTime(cmd.ProcessState).Round(time.Millisecond), b.wall)
	default:
		return b.postMortem(cmd.ProcessState, bounded.Err() != nil, string(stderr.text)), nil
	}
}

// postMortem returns the verdict on a module whose child died without a verdict. expired means that the child had run
// for b.wall.
func (b budget) postMortem(state *os.ProcessState, expired bool, stderr string) verdict {
	killed := state.ExitCode() < 0
	switch {
	case lacksMemory(stderr):
		return verdict{End: endMemory}
	case expired || killed && b.spent(state):
		return verdict{End: endTime}
	case killed && stderr == "":
		return verdict{End: endKilled}
	default:
		return verdict{End: endCrash, Text: strings.TrimSpace(stderr + "\n" + state.String())}
	}
}

// spent reports whether a child has used up its processor time. Linux counts ticks against the limit, but reports
// measured time, which is much less if other processes run between the ticks. So half of the limit is enough.
func (b budget) spent(state *os.ProcessState) bool { return processorTime(state) >= b.processor/2 }

func processorTime(state *os.ProcessState) time.Duration {
	return state.UserTime() + state.SystemTime()
}

// lacksMemory reports whether a Go process died because it got no memory. The last of the texts is a fault of Go's
// runtime outside all goroutines: the runtime does not check every allocation.
func lacksMemory(stderr string) bool {
	return slices.ContainsFunc([]string{
		"out of memory", "cannot allocate", "failed to allocate", "failed to create new OS thread", "pthread_create failed",
		"address space collisions", "SIGSEGV: segmentation violation\nPC=",
	}, func(words string) bool { return strings.Contains(stderr, words) })
}

// refusal returns the error for a verdict, or nil if the compilation succeeded.
func (b budget) refusal(v verdict) error {
	const smaller = "split its largest functions, or build it with fewer of them inlined (wasm-opt -O); `quern plugin check` tries it out"
	switch v.End {
	case endDone:
		return nil
	case endInvalid:
		return &Error{
			"not a valid WebAssembly module: " + redact.Label(redact.FirstLine(v.Text)),
			"build it again, without proposals beyond WebAssembly 2.0",
		}
	case endCrash:
		return &Error{
			"the compiler crashed on it: " + redact.Label(redact.FirstLine(v.Text)),
			"build it with other optimizations (wasm-opt -O), or with another version of its toolchain",
		}
	case endMemory:
		return &Error{"compiling it takes more than " + units.FormatSize(b.memory) + " of memory", smaller}
	case endTime:
		return &Error{"compiling it takes more than " + b.processor.String() + " of processor time", smaller}
	case endKilled:
		return &Error{
			"compiling it was ended by a SIGKILL, as the system does when it has no more memory",
			"give the host more memory, or " + smaller,
		}
	default:
		return fmt.Errorf("compile: %s", redact.Label(redact.FirstLine(v.Text)))
	}
}

// head keeps the first maxChildText bytes written to it.
type head struct{ text []byte }

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), maxChildText-len(h.text))]...)
	return len(p), nil
}
