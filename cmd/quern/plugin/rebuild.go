package plugin

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/plugins/manifest"
)

// rebuild builds a module from the manifest and source in its folder, if the module is missing or older than a source
// file. It builds only in a folder that the user named or in the working directory, because building runs code of that
// folder. Elsewhere, or if the build is refused, it warns that an existing module is outdated, and returns an error
// about a missing one.
func (l *local) rebuild(cmd *cobra.Command, module string, folderNamed bool) error {
	s, err := build.Read(filepath.Dir(module))
	if err != nil || l.noBuild || s.Manifest == "" || s.Name+manifest.ModuleSuffix != filepath.Base(module) {
		return nil //nolint:nilerr // the module is not built from this folder
	}
	why := module + " does not exist"
	info, err := os.Stat(module)
	if err == nil {
		newer := build.NewerFile(cmd.Context(), s, info.ModTime())
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
