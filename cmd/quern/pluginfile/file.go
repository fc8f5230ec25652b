// Package pluginfile reads plugin files, checks them as a host does when it loads one, and builds them from their
// source.
package pluginfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// File is a plugin file with the manifest beside it.
type File struct {
	Path, Name   string
	binary       []byte
	ManifestPath string
	Manifest     manifest.Manifest
	Unread       bool           // true if the manifest cannot be read
	Files        *runtime.Files // files that the manifest grants
	Warm         []byte
	// Refusals lists what is wrong with the two files. Read does not check the module; Load does.
	Refusals []runtime.Refusal
}

// Read reads the module at path and the manifest beside it, if there is one. It fails if there is no file to read;
// other faults become refusals.
func Read(path string) (*File, error) {
	return readWith(path, strings.TrimSuffix(path, manifest.ModuleSuffix)+manifest.Suffix)
}

// readWith is Read with a manifest that can be in another folder.
func readWith(path, manifestPath string) (*File, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noFile(path)
	}
	if err != nil {
		return nil, cli.Usagef("read plugin: %w", err)
	}
	p := &File{
		Path: path, Name: strings.TrimSuffix(filepath.Base(manifestPath), manifest.Suffix),
		ManifestPath: manifestPath,
	}
	switch {
	case !info.Mode().IsRegular():
		p.refuse("it is not a regular file", path, "put a "+manifest.ModuleSuffix+" file in its place")
	case info.Size() > runtime.MaxModule:
		p.refuse(fmt.Sprintf("it has %d bytes, more than %s", info.Size(), units.FormatSize(runtime.MaxModule)), path,
			"build it without debug information, or split it")
	default:
		p.binary, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, cli.Usagef("read plugin: %w", err)
	}
	p.Manifest, err = plugins.LoadManifest(manifestPath)
	if errors.Is(err, fs.ErrNotExist) {
		p.Manifest, err = manifest.Default(p.Name), nil
	}
	p.Unread = err != nil
	if err == nil {
		p.Files, p.Warm, err = plugins.LoadFiles(manifestPath, p.Manifest)
	}
	var wrong *manifest.Error
	switch {
	case errors.As(err, &wrong):
		p.Refusals = append(p.Refusals, wrong.Refusals()...)
	case err != nil:
		p.refuse(err.Error(), manifestPath, "make it a readable YAML file, or remove it")
	}
	return p, nil
}

// noFile returns the error of a plugin file that does not exist. It names a file of the same name that does, or how to
// build it if its source is in the current folder.
func noFile(path string) error {
	what := fmt.Sprintf("no such file %q", path)
	dir, base := filepath.Dir(path), filepath.Base(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		what += fmt.Sprintf(" (there is no folder %q)", dir)
	}
	name := strings.TrimSuffix(base, manifest.ModuleSuffix)
	for _, other := range []string{
		base, filepath.Join(plugins.DefaultDir, base), filepath.Join(name, base),
		filepath.Join(name, plugins.DefaultDir, base),
		filepath.Join("..", plugins.DefaultDir, base),
	} {
		if info, err := os.Stat(other); err == nil && info.Mode().IsRegular() {
			return cli.Usagef("%s: did you mean %s?", what, other)
		}
	}
	for _, source := range []string{".", name} {
		if s, err := build.Read(source); err == nil && s.Name == name && s.Manifest != "" {
			built := strings.TrimSuffix("quern plugin build "+cli.ShellWord(source), " .")
			return cli.Usagef("%s: build it with `%s`, and name %s", what, built, filepath.Join(source, base))
		}
	}
	return cli.Usagef("%s: name a %s file", what, manifest.ModuleSuffix)
}

func (p *File) refuse(what, where, remedy string) {
	p.Refusals = append(p.Refusals, runtime.Refusal{What: what, Where: where, Remedy: remedy})
}

// Refusal returns the error of a refused plugin; nil if nothing is wrong.
func (p *File) Refusal() error {
	if len(p.Refusals) == 0 {
		return nil
	}
	return cli.Refusedf("%s is refused: %w", p.Path, &runtime.RefusedError{Refusals: p.Refusals})
}

// Binary returns the bytes of the module.
func (p *File) Binary() []byte { return p.binary }

// Load compiles the module and checks that the manifest fits it.
func (p *File) Load(ctx context.Context, engine *runtime.Engine) (*runtime.Module, error) {
	module, err := engine.Load(ctx, p.binary)
	if err != nil || p.Unread {
		return module, err
	}
	err = module.Admits(p.Manifest.Limits.WithDefaults())
	if err == nil {
		err = p.Manifest.CheckModule(p.ManifestPath, module.Info())
	}
	if wrong, ok := errors.AsType[*manifest.Error](err); ok {
		err = &runtime.RefusedError{Refusals: wrong.Refusals()}
	}
	if err != nil {
		return nil, errors.Join(err, module.Close(ctx))
	}
	return module, nil
}

// LocalID is the ID of a task that runs without Redis.
const LocalID = "local"

// Check checks the plugin as a host does when it loads one: faults become refusals.
func (p *File) Check(ctx context.Context, env cli.Environment, config runtime.Config) (info runtime.Info, err error) {
	base := filepath.Base(p.Path)
	switch {
	case !strings.HasSuffix(base, manifest.ModuleSuffix):
		p.refuse("a host ignores files that do not end in "+manifest.ModuleSuffix, p.Path,
			"rename it to NAME"+manifest.ModuleSuffix)
	case strings.HasPrefix(base, "."):
		p.refuse("a host ignores files that begin with a dot", p.Path, "rename it")
	case queue.ValidQueue(p.Name) != nil:
		p.refuse("the file's name is no name of a queue", p.Path,
			"rename it, with 1 to 128 printable ASCII characters without spaces")
	}
	if p.binary == nil {
		return info, nil
	}
	config.Logger = hclog.NewNullLogger()
	engine, _, err := sandbox.NewEngine(ctx, env, config)
	if err != nil {
		return info, err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	module, err := p.Load(ctx, engine)
	if err == nil {
		return module.Info(), module.Close(ctx)
	}
	refused, ok := errors.AsType[*runtime.RefusedError](err)
	if !ok {
		return info, err
	}
	p.Refusals = append(p.Refusals, refused.Refusals...)
	info, _ = engine.Inspect(ctx, p.binary) // about the part that can be read
	return info, nil
}

// Build builds a plugin into the folder outDir and returns the path of the module. If outDir is "", it builds into the
// folder of the source.
func Build(cmd *cobra.Command, env cli.Environment, engines string, s *build.Source, outDir string) (string, error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // so that no partial file is left
	defer stop()
	file, err := NewBuilder(env, engines, cmd.ErrOrStderr()).Build(ctx, s, outDir)
	if ctx.Err() != nil {
		return "", cli.Refusedf("interrupted, so %s is not built: the files are as before", s.Name)
	}
	return file, BuildError(err)
}

// EnginesFlag adds --engines, for commands that build plugins.
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

// BuildError gives the error of a plugin that could not be built its exit status.
func BuildError(err error) error {
	if cause, ok := errors.AsType[*build.Error](err); ok {
		status := map[build.Cause]int{
			build.Usage: cli.ExitUsage, build.Failed: cli.ExitFailed,
			build.Refused: cli.ExitRefused,
		}[cause.Cause]
		return &cli.ExitError{Status: status, Err: err}
	}
	return err
}

// taskTime bounds the empty task, so that a rebuild does not wait for the work of a handler. startFuel bounds the start
// before it where the manifest has no limits.cpu: fuel, because a busy machine makes a start long and not wrong.
const (
	taskTime  = 10 * time.Second
	startFuel = 10 * time.Second
)

// notStarted is the prefix of the error of a task whose plugin in Python or JavaScript failed while its code was
// loaded: see sdk/ABI.md.
const notStarted = "the plugin did not start: "

// startOnce loads a module that was just built. If the module contains an interpreter, startOnce runs an empty task
// without services. If the start fails, it returns the log and the error. It warns of a slow start on stderr, and
// ignores the outcome of the task itself.
func startOnce(ctx context.Context, env cli.Environment, stderr io.Writer, s *build.Source,
	module string,
) ([]string, error) {
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
		return nil, nil // a compiler has checked the code
	}
	permissions := manifest.NewPermissions(&p.Manifest, nil, "", nil)
	permissions.Limits.CPU = cmp.Or(permissions.Limits.CPU, startFuel)
	pool := loaded.Bind(runtime.Profile{
		Tenant: "build", Env: p.Manifest.Capabilities.Env, Files: p.Files, Limits: permissions.Limits,
		Config: permissions.Config,
	})
	defer pool.Close()
	var said []string
	outcome := pool.Run(ctx, runtime.Call{
		TaskID: LocalID, Queue: s.Name, Plugin: s.Name, Attempt: 1, Timeout: taskTime,
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
	case outcome.BeforeTask && outcome.Limit.Name == "timeout": // perhaps the machine is busy
	case outcome.BeforeTask && outcome.Limit.Name == "cpu" && p.Manifest.Limits.CPU == 0: // a slow start is no error
		fmt.Fprintf(stderr, "note: %s computes for long when it is imported, and its first task waits for that; if it never ends, all its tasks fail\n", s.Name)
	case outcome.BeforeTask:
		return append(said, outcome.Message), nil
	}
	return nil, ctx.Err()
}
