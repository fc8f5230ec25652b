package pluginfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
)

// Build builds a plugin into a folder, "" for that of its source, and returns the path of the module.
func Build(cmd *cobra.Command, env cli.Environment, engines string, s *build.Source, to string) (string, error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // leaves no partial file
	defer stop()
	file, err := NewBuilder(env, engines, cmd.ErrOrStderr()).Build(ctx, s, to)
	if ctx.Err() != nil {
		return "", cli.Refusedf("interrupted, so %s is not built: the files are as before", s.Name)
	}
	return file, BuildError(err)
}

// EnginesFlag adds the flag of commands that build plugins.
func EnginesFlag(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "engines", "", "`DIR` of the engines of Python and JavaScript (default engines beside this program)")
}

// NewBuilder makes a builder that checks what it builds. Compilers write to stderr.
func NewBuilder(env cli.Environment, engines string, stderr io.Writer) *build.Builder {
	config := build.Config{Getenv: env.Get, Stderr: stderr, Engines: engines}
	if dir, err := env.CacheDir(); err == nil {
		config.Cache = filepath.Join(dir, "quern")
	}
	config.Start = func(ctx context.Context, s *build.Source, module string) ([]string, error) {
		return startOnce(ctx, env, stderr, s, module)
	}
	return build.New(config)
}

// BuildError is the error of a plugin that is not built, with its exit status.
func BuildError(err error) error {
	if cause, ok := errors.AsType[*build.Error](err); ok {
		status := map[build.Cause]int{build.Usage: cli.ExitUsage, build.Failed: cli.ExitFailed, build.Refused: cli.ExitRefused}[cause.Cause]
		return &cli.ExitError{Status: status, Err: err}
	}
	return err
}

// startTime bounds the start of a plugin and its empty task together: a rebuild must not wait for the handler's work.
const startTime = 10 * time.Second

// notStarted begins the error of each task of a plugin in Python or JavaScript whose module does not start, as
// sdk/ABI.md says.
const notStarted = "the plugin did not start: "

// startOnce loads a module that was just built. If an interpreter is in it, it runs an empty task without services, and
// returns its log and error if its start fails, and warns of a slow start on stderr. It ignores the outcome of the task
// itself.
func startOnce(ctx context.Context, env cli.Environment, stderr io.Writer, s *build.Source, module string) ([]string, error) {
	p, err := readWith(module, filepath.Join(s.Dir, s.Name+manifest.Suffix))
	if err == nil {
		err = p.Refusal()
	}
	if err != nil {
		return nil, err
	}
	engine, _, err := sandbox.NewEngine(ctx, env, runtime.Config{Logger: hclog.NewNullLogger()})
	if err != nil {
		return nil, err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	loaded, err := p.Load(ctx, engine)
	if err != nil {
		return nil, err
	}
	defer loaded.Close(context.WithoutCancel(ctx))
	if len(loaded.Info().Files) == 0 {
		return nil, nil // a compiler has checked its code
	}
	permissions := manifest.NewPermissions(&p.Manifest, nil, "", nil)
	pool := loaded.Bind(runtime.Profile{
		Tenant: "build", Env: p.Manifest.Capabilities.Env, Files: p.Files, Limits: permissions.Limits, Config: permissions.Config,
	})
	defer pool.Close()
	var said []string
	outcome := pool.Run(ctx, runtime.Call{
		TaskID: LocalID, Queue: s.Name, Plugin: s.Name, Attempt: 1, Timeout: startTime,
		Log: func(line string) { said = append(said, line) },
	})
	_, why, failed := strings.Cut(outcome.Message, notStarted)
	switch {
	case outcome.Kind == runtime.HostFault:
		return nil, fmt.Errorf("start %s: %w", s.Name, outcome.Err)
	case failed && len(said) > 0: // a traceback
		for i, line := range said {
			said[i] = strings.TrimPrefix(line, "error: ")
		}
		return said, nil
	case failed:
		return strings.Split(why, "\n"), nil
	case outcome.BeforeTask && outcome.Limit.Name == "timeout": // slow is not wrong
		fmt.Fprintf(stderr, "note: %s did not start within %s: if what it does when it is imported never ends, all its tasks will fail\n", s.Name, startTime)
	case outcome.BeforeTask:
		return append(said, outcome.Message), nil
	}
	return nil, ctx.Err()
}
