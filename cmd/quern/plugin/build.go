package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/plugins/manifest"
)

func newPluginBuild(env cli.Environment) *cobra.Command {
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
		Args: cli.Arguments(0, 1),
	}
	to := cmd.Flags().String("to", "", "`DIR` for NAME.wasm, the manifest and its files, such as a plugin directory (default DIR)")
	var engines string
	pluginfile.EnginesFlag(cmd.Flags(), &engines)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := build.Read(append(args, ".")[0])
		if err != nil {
			return pluginfile.BuildError(err)
		}
		file, err := pluginfile.Build(cmd, env, engines, s, *to)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
		return err
	}
	return cmd
}

// rebuild builds a module whose manifest and source lie beside it, if it does not exist or a file of the source is
// newer: only in a folder that the user named or is in, because building runs code of that folder. Elsewhere, and
// without a compiler on this machine, it warns that the module is outdated.
func (l *local) rebuild(cmd *cobra.Command, module string, folderNamed bool) error {
	s, err := build.Read(filepath.Dir(module))
	if err != nil || l.noBuild || s.Manifest == "" || s.Name+manifest.ModuleSuffix != filepath.Base(module) {
		return nil //nolint:nilerr // the module is not built from this folder
	}
	why := module + " does not exist"
	info, err := os.Stat(module)
	if err == nil {
		newer := build.NewerFile(s, info.ModTime())
		if newer == "" {
			return nil
		}
		why = newer + " is newer than " + module
	}
	here, _ := os.Getwd()
	if dir, _ := filepath.Abs(s.Dir); !folderNamed && dir != here {
		const remedy = "build it with `quern plugin build %s` if you trust what is in that folder"
		if info == nil {
			return cli.Usagef("%s: "+remedy, why, cli.ShellWord(s.Dir))
		}
		cli.Note(cmd, "%s, which is used as it is: "+remedy, why, cli.ShellWord(s.Dir))
		return nil
	}
	cli.Note(cmd, "%s: building %s", why, s.Name)
	_, err = pluginfile.Build(cmd, l.env, l.engines, s, "")
	if cause, ok := errors.AsType[*build.Error](err); ok && cause.Cause == build.Refused && info != nil {
		cli.Note(cmd, "%s is not rebuilt, so the outdated one is used: %v", module, err)
		return nil
	}
	return err
}
