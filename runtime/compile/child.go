package compile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/tetratelabs/wazero"

	"github.com/quern-project/quern/runtime/redact"
)

// Child is the whole main function of a compile child, which a Cache starts with the command line Config.Child. Child
// limits this process, and then compiles one module. args are the arguments that the Cache has added. Child reads the
// module from stdin, and writes verdicts to stdout and the code into the working directory. An error means that there
// is no verdict.
func Child(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	const count = 3
	if len(args) != count {
		return fmt.Errorf("got %d arguments, want the bytes of memory, the seconds of processor time and the bytes of the module", len(args))
	}
	var numbers [count]int64
	for i, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("argument %q is no number", arg)
		}
		numbers[i] = n
	}
	memory, seconds, size := numbers[0], numbers[1], numbers[2]
	// Go's garbage collector would use every idle processor; they are for the tasks.
	goruntime.GOMAXPROCS(min(2, goruntime.GOMAXPROCS(0)))
	debug.SetMemoryLimit(memory / 4 * 3) // above this, the collector works harder
	if err := limitChild(memory, seconds); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	out := json.NewEncoder(stdout)
	if err := out.Encode(verdict{End: endReady}); err != nil {
		return err
	}
	binary := make([]byte, size)
	if _, err := io.ReadFull(stdin, binary); err != nil {
		return fmt.Errorf("read module: %w", err)
	}
	v := verdictOf(compileIn(ctx, ".", binary))
	v.Text = redact.Prefix(v.Text, maxChildText/8) // quoted as JSON, the text is longer
	return out.Encode(v)
}

// compileIn compiles a module, and makes wazero write the entry into the directory stage.
func compileIn(ctx context.Context, stage string, binary []byte) (err error) {
	cache, err := wazero.NewCompilationCacheWithDir(stage)
	if err != nil {
		return fmt.Errorf("open stage: %w", err)
	}
	b := newBackend(ctx, cache)
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	_, err = b.compile(ctx, binary)
	return err
}

// verdict says how a compilation ended. A child writes two verdicts to stdout, each as a line of JSON. The End of the
// first is endReady.
type verdict struct {
	End  string `json:"end"`
	Text string `json:"text,omitempty"`
}

// maxChildText is the maximum length of the stdout and of the stderr of a child, in bytes. The rest is dropped.
const maxChildText = 64 << 10

// The values of verdict.End.
const (
	endReady   = "ready"   // the compilation has not begun: the child has limited itself
	endDone    = "done"    // the module is compiled
	endInvalid = "invalid" // Text is the compiler's error
	endCrash   = "crash"   // Text is the child's stderr, or the compiler's panic
	endMemory  = "memory"  // the memory was not enough
	endTime    = "time"    // the time was not enough
	endKilled  = "killed"  // a SIGKILL that the host did not send
	endFailed  = "failed"  // Text is the system's error
)

// lastVerdict returns the last verdict in a child's stdout, with an empty End if there is none. ready reports whether
// the child was ready.
func lastVerdict(stdout []byte) (last verdict, ready bool) {
	for decoder := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var v verdict
		switch err := decoder.Decode(&v); {
		case err != nil:
			return last, ready
		case v.End == endReady:
			ready = true
		default:
			last = v
		}
	}
}

// verdictOf returns the verdict on an error of wazero's compiler.
func verdictOf(err error) verdict {
	var crash *panicError
	var path *fs.PathError
	var link *os.LinkError
	var number syscall.Errno
	switch {
	case err == nil:
		return verdict{End: endDone}
	case errors.Is(err, syscall.ENOMEM):
		return verdict{End: endMemory}
	case errors.As(err, &crash):
		return verdict{End: endCrash, Text: err.Error()}
	case errors.As(err, &path), errors.As(err, &link), errors.As(err, &number):
		return verdict{End: endFailed, Text: err.Error()}
	default:
		return verdict{End: endInvalid, Text: err.Error()}
	}
}

// limitChild limits this process permanently, closes inherited files, and lowers the priority.
func limitChild(memory, seconds int64) error {
	space, err := addressSpace(memory)
	if err == nil && space > 0 {
		err = lower(syscall.RLIMIT_AS, space)
	}
	if err := errors.Join(
		lower(syscall.RLIMIT_CORE, 0),
		lower(syscall.RLIMIT_CPU, uint64(seconds)), // the hard limit is a SIGKILL
		err,
		closeInherited(),
	); err != nil {
		return err
	}
	if syscall.Getpgrp() == syscall.Getpid() {
		const nice = 10
		// For a process, Linux would change only one thread. For a group, it changes all threads.
		return syscall.Setpriority(syscall.PRIO_PGRP, 0, nice)
	}
	return nil
}

// lower sets a limit of this process, unless the present limit is lower.
func lower(resource int, limit uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	limit = min(limit, now.Max)
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit})
}
