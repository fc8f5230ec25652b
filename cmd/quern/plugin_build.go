package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
)

func newPluginBuild(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "build [DIR]", Short: "Build a plugin from a folder of source",
		Long: "Builds NAME.wasm beside the manifest NAME.yaml. DIR is the current folder by default. The language is that\n" +
			"of the files in it:\n\n" +
			"  *.go                       Go, by its toolchain\n" +
			"  handler.py                 Python: with the folder's modules, packages and data, and what\n" +
			"                             requirements.txt lists, by pip\n" +
			"  handler.ts, handler.js     TypeScript, JavaScript (also .tsx, .mjs): bundled with what they import\n" +
			"  Cargo.toml                 Rust, by cargo; for the target in .cargo/config.toml if that names one\n" +
			"  asconfig.json              AssemblyScript, by asc with the target release of that file\n" +
			"  *.c                        C, by a clang that targets WebAssembly; it needs no copy of quern.h\n\n" +
			"Messages of compilers go to stderr. What exports quern_handle becomes a handler, anything else a command.\n" +
			"The module is checked as by quern plugin check; what a host would refuse does not replace the file from before.\n" +
			"A handler in Python or JavaScript is started once, in the sandbox and without services, and runs an empty\n" +
			"task, for 10 s at most: so an import that fails is told now.\n\n" +
			"Exit status: 0 built, 1 the source is wrong, 2 there is no such source, 3 a compiler or an engine is\n" +
			"missing, or the manifest is wrong.",
		Args: arguments(0, 1),
	}
	to := cmd.Flags().String("to", "", "`DIR` for NAME.wasm, the manifest and its files, such as a plugin directory (default DIR)")
	var engines string
	enginesFlag(cmd.Flags(), &engines)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := build.Read(append(args, ".")[0])
		if err != nil {
			return unbuilt(err)
		}
		file, err := buildSource(cmd, env, engines, s, *to)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
		return err
	}
	return cmd
}

// buildSource builds a plugin into a folder, "" for that of its source, and returns the path of the module.
func buildSource(cmd *cobra.Command, env environment, engines string, s *build.Source, to string) (string, error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // leaves no partial file
	defer stop()
	file, err := newBuilder(env, engines, cmd.ErrOrStderr()).Build(ctx, s, to)
	if ctx.Err() != nil {
		return "", refusedf("interrupted, so %s is not built: the files are as before", s.Name)
	}
	return file, unbuilt(err)
}

// rebuild builds a module whose manifest and source lie beside it, if it does not exist or a file of the source is newer: only in a
// folder that the user named or is in, because building runs code of that folder. Elsewhere, and without a compiler on this machine, it
// tells that the module is outdated.
func (l *local) rebuild(cmd *cobra.Command, module string, folderNamed bool) error {
	s, err := build.Read(filepath.Dir(module))
	if err != nil || l.noBuild || s.Manifest == "" || s.Name+manifest.ModuleSuffix != filepath.Base(module) {
		return nil //nolint:nilerr // the module is not built from this folder
	}
	why := module + " does not exist"
	info, err := os.Stat(module)
	if err == nil {
		newer := newerSource(s, info.ModTime())
		if newer == "" {
			return nil
		}
		why = newer + " is newer than " + module
	}
	here, _ := os.Getwd()
	if dir, _ := filepath.Abs(s.Dir); !folderNamed && dir != here {
		const remedy = "build it with `quern plugin build %s` if you trust what is in that folder"
		if info == nil {
			return usagef("%s: "+remedy, why, shellWord(s.Dir))
		}
		note(cmd, "%s, which is used as it is: "+remedy, why, shellWord(s.Dir))
		return nil
	}
	note(cmd, "%s: building %s", why, s.Name)
	_, err = buildSource(cmd, l.env, l.engines, s, "")
	if cause, ok := errors.AsType[*build.Error](err); ok && cause.Cause == build.Refused && info != nil {
		note(cmd, "%s is not rebuilt, so the outdated one is used: %v", module, err)
		return nil
	}
	return err
}

// newerSource returns a file of a source that changed after a time, "" if there is none. Manifest, tests and documents are not part of
// the module.
func newerSource(s *build.Source, than time.Time) string {
	apart := []string{s.Manifest}
	if m, err := plugins.LoadManifest(s.Manifest); err == nil {
		for _, test := range m.Tests {
			apart = append(apart, filepath.Join(s.Dir, test.Input), filepath.Join(s.Dir, test.Output))
			for _, one := range test.Dependencies {
				apart = append(apart, filepath.Join(s.Dir, one.Result))
			}
		}
	}
	files := sourceFiles(s.Dir, "", func(string) {})
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if files[path].modified.After(than) && !slices.Contains(apart, path) && filepath.Ext(path) != ".md" {
			return path
		}
	}
	return ""
}

// stamp identifies a state of a file.
type stamp struct {
	size     int64
	modified time.Time
}

// sourceFiles lists the files of a source in a folder that is built into another one, without files that cannot be read. It calls each
// for every folder.
func sourceFiles(dir, to string, each func(folder string)) map[string]stamp {
	files := map[string]stamp{}
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return nil //nolint:nilerr // as the comment above says
		case entry.IsDir() && path != dir && build.Foreign(path, to):
			return filepath.SkipDir // it has no source of the author's
		case entry.IsDir():
			each(path)
			return nil
		case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") ||
			strings.HasSuffix(name, manifest.ModuleSuffix) || name == "4913": // vim's test file
			return nil // editors or builds made it
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && !isOutput(info) {
			files[path] = stamp{info.Size(), info.ModTime()}
		}
		return nil
	})
	return files
}

// isOutput reports whether this process writes into a file: `quern dev > dev.log`.
func isOutput(file fs.FileInfo) bool {
	return slices.ContainsFunc([]*os.File{os.Stdout, os.Stderr}, func(f *os.File) bool {
		info, err := f.Stat()
		return err == nil && os.SameFile(info, file)
	})
}

// enginesFlag adds the flag of commands that build plugins.
func enginesFlag(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "engines", "", "`DIR` of the engines of Python and JavaScript (default engines beside this program)")
}

// newBuilder makes a builder that checks what it builds. Compilers write to stderr.
func newBuilder(env environment, engines string, stderr io.Writer) *build.Builder {
	config := build.Config{Getenv: env.get, Stderr: stderr, Engines: engines}
	if dir, err := env.cacheDir(); err == nil {
		config.Cache = filepath.Join(dir, "quern")
	}
	config.Start = func(ctx context.Context, s *build.Source, module string) ([]string, error) {
		return startOnce(ctx, env, stderr, s, module)
	}
	return build.New(config)
}

// unbuilt is the error of a plugin that is not built, with its exit status.
func unbuilt(err error) error {
	if cause, ok := errors.AsType[*build.Error](err); ok {
		status := map[build.Cause]int{build.Usage: exitUsage, build.Failed: exitFailed, build.Refused: exitRefused}[cause.Cause]
		return &exitError{status: status, err: err}
	}
	return err
}

// startTime bounds the start of a plugin and its empty task together: a rebuild must not wait for the handler's work.
const startTime = 10 * time.Second

// notStarted begins the error of each task of a plugin in Python or JavaScript whose module does not start, as sdk/ABI.md says.
const notStarted = "the plugin did not start: "

// startOnce loads a module that was just built. If an interpreter is in it, it runs an empty task without services, and returns its log
// and error if its start fails; a slow one is noted on stderr. What else becomes of the task is no matter.
func startOnce(ctx context.Context, env environment, stderr io.Writer, s *build.Source, module string) ([]string, error) {
	p, err := readPluginWith(module, filepath.Join(s.Dir, s.Name+manifest.Suffix))
	if err == nil {
		err = p.refusal()
	}
	if err != nil {
		return nil, err
	}
	engine, _, err := newEngine(ctx, env, runtime.Config{Logger: hclog.NewNullLogger()})
	if err != nil {
		return nil, err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	loaded, err := p.load(ctx, engine)
	if err != nil {
		return nil, err
	}
	defer loaded.Close(context.WithoutCancel(ctx))
	if len(loaded.Info().Files) == 0 {
		return nil, nil // a compiler has checked its code
	}
	permissions := manifest.NewPermissions(&p.manifest, nil, "", nil)
	pool := loaded.Bind(runtime.Profile{
		Tenant: "build", Env: p.manifest.Capabilities.Env, Files: p.files, Limits: permissions.Limits, Config: permissions.Config,
	})
	defer pool.Close()
	var said []string
	outcome := pool.Run(ctx, runtime.Call{
		TaskID: localID, Queue: s.Name, Plugin: s.Name, Attempt: 1, Timeout: startTime,
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
