package runtime

import (
	"bytes"
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
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/turns"
	"github.com/quern-project/quern/runtime/units"
)

// A module is given the processor time and the memory that these say, by its code alone: the rest of a file costs the
// compiler next to nothing. What was measured, with the address space beyond that of a new process:
//
//	                           code       time      memory
//	an empty Go program       1.5 MiB     1.9 s     76 MiB
//	gofmt                     3.0 MiB     4.3 s     89 MiB
//	CPython 3.12              5.9 MiB    10.5 s    176 MiB
//	a MiB in one function     1.0 MiB   3 to 13 s   0.7 to 3.9 GiB
//
// So the base is for one large function, and the rest for many. Slower machines exist, too.
const (
	baseTime     = 4 * time.Second // of processor time
	timePerMiB   = 6 * time.Second
	baseMemory   = 512 << 20 // of address space, beyond what a new process has
	memoryPerMiB = 64 << 20
)

// What a module is given at most if Config says nothing else. It is enough for Go's compiler, which has 31 MiB of code
// and took 97 s and 1.2 GiB.
const (
	DefaultCompileTime         = 3 * time.Minute
	DefaultCompileMemory int64 = 1280 << 20
)

// smallCode is the size of the code of a module in bytes that still counts as small.
const smallCode = 1 << 20

// maxLoading bounds the bytes of modules that are loaded from the cache at once.
const maxLoading = 256 << 20

const (
	childWait = 5 * time.Second // for pipes that what a child has started holds open
	maxStage  = time.Hour       // is longer than any compilation
)

// errNoChild is wrapped by errors about the child process, for which no module is to blame.
var errNoChild = errors.New("no compile child")

// compiler compiles modules into stages, each in a child process of its own.
//
// wazero's compiler takes time and memory that bear no relation to the size of a module, looks at no
// context meanwhile, and ends the process when there is no memory. So it runs where that ends nothing else:
//
//	host                                 child (the same program, in the stage, without environment)
//	 │── start ─────────────────────────▶ limits itself: address space, processor time, no core dump
//	 │◀──────────────────────── ready ───│
//	 │── the module, on stdin ──────────▶ compiles; wazero writes the entry into the stage
//	 │◀──────── done, invalid, crash ... │
//
// A child that ends otherwise has died of the module, and how it died is the reason of the refusal.
type compiler struct {
	command []string      // nil: in this process
	time    time.Duration // the most that a compilation may take
	memory  int64         // the same
	turns   *turns.Turns  // at compiling; weighs memory
	loads   *turns.Turns  // at loading what is compiled
	logger  hclog.Logger

	mu      sync.Mutex
	closed  bool
	refused map[string]refusal       // by key
	claims  map[string]chan struct{} // by key; closed when the compilation has ended
}

// refusal is what became of a module, so that a folder full of copies takes no longer than one.
type refusal struct {
	err   *RefusedError
	until time.Time
}

// rememberFor is how long a module that was refused is not compiled again. It is not for ever, since how
// long a compilation takes is also the machine's doing.
const rememberFor = 10 * time.Minute

// newCompiler lets half of the processors compile, and leaves the other half to the tasks; but two modules are compiled
// at once in any case, and a small one beside them.
func newCompiler(cfg Config) *compiler {
	c := &compiler{
		command: cfg.Compiler, time: cfg.CompileTime, memory: cfg.CompileMemory, logger: cfg.Logger,
		refused: map[string]refusal{}, claims: map[string]chan struct{}{},
		loads: turns.New(turns.Config{Places: max(2, goruntime.GOMAXPROCS(0)), Room: maxLoading}),
	}
	if c.time <= 0 {
		c.time = slowdown * DefaultCompileTime
	}
	if c.memory <= 0 {
		c.memory = DefaultCompileMemory
	}
	small := c.budget(smallCode).memory
	c.turns = turns.New(turns.Config{Places: max(2, cfg.Guests/2), Room: 2*c.memory - small, Small: small})
	return c
}

// remembered is the refusal of a module that was tried not long ago, else nil.
func (c *compiler) remembered(key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.refused[key]; ok && time.Now().Before(r.until) {
		return r.err
	}
	return nil
}

func (c *compiler) remember(key string, err *RefusedError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.refused, func(_ string, r refusal) bool { return now.After(r.until) })
	c.refused[key] = refusal{err: err, until: now.Add(rememberFor)}
}

// claim claims the compilation of a program for the caller, who calls done when it has ended. If somebody else has claimed
// it, other is closed when that compilation has ended.
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

// close lets nobody claim a compilation any more.
func (c *compiler) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// budget is what a compilation may take.
type budget struct {
	memory    int64         // bytes
	processor time.Duration // of processor time
	wall      time.Duration // until the child is given up: it waits for processors behind everything else
}

// budget is the budget of a module by the size of its code in bytes.
func (c *compiler) budget(code int) budget {
	b := budget{
		memory:    min(c.memory, baseMemory+memoryPerMiB*int64((code+1<<20-1)>>20)),
		processor: min(c.time, slowdown*(baseTime+timePerMiB*time.Duration(code)/(1<<20))),
	}
	b.processor = (b.processor + time.Second - 1).Truncate(time.Second) // the system counts in seconds
	b.wall = b.processor
	if limitsProcessor {
		b.wall = max(b.processor, min(10*b.processor, maxStage/2))
	}
	return b
}

// compile makes wazero write the entry of a module into a stage. What is the module's fault is a
// *RefusedError; any other error is the host's.
func (c *compiler) compile(ctx context.Context, stage string, p *program, b budget) error {
	started := time.Now()
	var v verdict
	var err error
	if c.command == nil {
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
		c.logger.Debug("compiler crashed", "digest", p.digest, "output", v.Text)
	}
	if err := b.refusal(v); err != nil {
		var refused *RefusedError
		if errors.As(err, &refused) && v.End != endKilled {
			c.remember(p.key, refused)
		}
		return err
	}
	c.logger.Debug("module compiled", "digest", p.digest, "size", p.source.size, "duration", time.Since(started))
	return nil
}

// inChild starts a child, hands it the module, and tells how it ended. When it returns, the child is gone.
func (c *compiler) inChild(ctx context.Context, stage string, p *program, b budget) (verdict, error) {
	// Linux kills the child when the thread ends that started it, which is meant for a host that dies.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	bounded, cancel := context.WithTimeout(ctx, b.wall)
	defer cancel()
	cmd := exec.CommandContext(bounded, c.command[0], append(slices.Clip(c.command[1:]),
		strconv.FormatInt(b.memory, 10), strconv.FormatInt(int64(b.processor/time.Second), 10), strconv.FormatInt(p.source.size, 10))...)
	var stdout, stderr head
	cmd.Dir = stage
	cmd.Env = []string{} // nothing of the host's
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.source.reader(), &stdout, &stderr
	cmd.SysProcAttr = childAttributes()
	cmd.Cancel = func() error { return killChild(cmd.Process) }
	cmd.WaitDelay = childWait
	err := cmd.Start()
	if err == nil {
		c.logger.Debug("compile child started", "digest", p.digest, "pid", cmd.Process.Pid)
		err = cmd.Wait()
	}
	v, ready := lastVerdict(stdout.text)
	switch {
	case v.End != "":
		return v, nil
	case ctx.Err() != nil:
		return verdict{}, context.Cause(ctx)
	case !ready:
		return verdict{}, fmt.Errorf("%w: run %q: %w: %s", errNoChild, c.command, err, label(firstLine(stderr.text)))
	case bounded.Err() != nil && limitsProcessor && !b.spent(cmd.ProcessState):
		return verdict{}, fmt.Errorf("%w: the machine is too busy: it got %v of processor time in %v",
			errNoChild, processorTime(cmd.ProcessState).Round(time.Millisecond), b.wall)
	default:
		return b.postMortem(cmd.ProcessState, bounded.Err() != nil, string(stderr.text)), nil
	}
}

// postMortem tells from what is left of a child why it died.
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

// spent tells whether a child has used up its processor time. Linux counts ticks for the limit and measures
// what it reports, and the two are far apart where other processes run between the ticks.
func (b budget) spent(state *os.ProcessState) bool { return processorTime(state) >= b.processor/2 }

func processorTime(state *os.ProcessState) time.Duration {
	return state.UserTime() + state.SystemTime()
}

// lacksMemory knows the words with which a process of Go dies when it gets no more memory. The last are those
// of a fault in Go's own runtime, outside all goroutines: not everywhere does it look whether it got any.
func lacksMemory(stderr string) bool {
	return slices.ContainsFunc([]string{
		"out of memory", "cannot allocate", "failed to allocate", "failed to create new OS thread", "pthread_create failed",
		"address space collisions", "SIGSEGV: segmentation violation\nPC=",
	}, func(words string) bool { return strings.Contains(stderr, words) })
}

// refusal is the error of a compilation within the budget; nil for a module that was compiled.
func (b budget) refusal(v verdict) error {
	const smaller = "split its largest functions, or build it with fewer of them inlined (wasm-opt -O); `quern plugin check` tries it out"
	switch v.End {
	case endDone:
		return nil
	case endInvalid:
		return invalid(v.Text)
	case endCrash:
		return refuse("the compiler crashed on it: "+label(firstLine([]byte(v.Text))), "",
			"build it with other optimizations (wasm-opt -O), or with another version of its toolchain")
	case endMemory:
		return refuse("compiling it takes more than "+units.FormatSize(b.memory)+" of memory", "", smaller)
	case endTime:
		return refuse("compiling it takes more than "+b.processor.String()+" of processor time", "", smaller)
	case endKilled:
		return refuse("compiling it was ended by a SIGKILL, as the system does when it has no more memory", "",
			"give the host more memory, or "+smaller)
	default:
		return fmt.Errorf("compile: %s", label(firstLine([]byte(v.Text))))
	}
}

// invalid refuses what the compiler did not accept. The text is the compiler's, and may contain names of the file.
func invalid(text string) *RefusedError {
	reason, _, _ := strings.Cut(text, "\n")
	return refuse("not a valid WebAssembly module: "+label(reason), "",
		"build it again, without proposals beyond WebAssembly 2.0")
}

func firstLine(text []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	return string(line)
}

// head keeps the beginning of what is written to it, and takes the rest.
type head struct{ text []byte }

var _ io.Writer = (*head)(nil)

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), maxChildText-len(h.text))]...)
	return len(p), nil
}
