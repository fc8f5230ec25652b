package main

import (
	"os"
	goruntime "runtime"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/runtime"
)

// compileChild is the command of a process that a host starts to compile one plugin.
const compileChild = "compiler"

func newCompileChild() *cobra.Command {
	return &cobra.Command{
		Use: compileChild + " MEMORY SECONDS SIZE", Short: "Compile the module on stdin, for a host that has started this process",
		Hidden:            true,
		Args:              arguments(3, 3),
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // needs no settings
		RunE: func(cmd *cobra.Command, args []string) error {
			return runtime.CompileChild(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// ownCommand is this program with a command of its own.
func ownCommand(name string) ([]string, error) {
	program := "/proc/self/exe" // the file that runs, also when a new version has taken its place
	if goruntime.GOOS != "linux" {
		var err error
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return []string{program, name}, nil
}
