package main

import (
	"fmt"
	"os"
	goruntime "runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

const (
	compileTimeName   = "compile-time"
	compileMemoryName = "compile-memory"
)

// engineFlags adds the settings of an engine.
func engineFlags(flags *pflag.FlagSet) {
	resetFlag(flags)
	newPeriod(flags, new(time.Duration), compileTimeName, runtime.DefaultCompileTime,
		"most processor time to compile a plugin in; one is given 4s, and 6s for each MiB of its code, up to this")
	memory := compileMemory(runtime.DefaultCompileMemory)
	flags.Var(&memory, compileMemoryName,
		"most memory to compile a plugin in; one is given 512MiB, and 64MiB for each MiB of its code, up to this; all together twice this")
}

// engineConfig is what the flags say of an engine.
func engineConfig(flags *pflag.FlagSet) (config runtime.Config, err error) {
	if config.ResetMode, err = resetModeOf(flags); err != nil {
		return config, err
	}
	flag := flags.Lookup(compileTimeName)
	config.CompileTime, err = parseDuration(flag.Value.String())
	if err != nil || config.CompileTime < time.Second || config.CompileTime > 30*time.Minute {
		return config, usagef("%s %q: use 1s to 30m", origin(flag), flag.Value)
	}
	config.CompileMemory, err = units.ParseSize(flags.Lookup(compileMemoryName).Value.String())
	return config, err
}

// compileMemory is a size that leaves the compiler enough to begin.
type compileMemory int64

func (m *compileMemory) Type() string   { return "size" }
func (m *compileMemory) String() string { return units.FormatSize(int64(*m)) }

func (m *compileMemory) Set(text string) error {
	const least = 64 << 20
	bytes, err := units.ParseSize(text)
	if err != nil || bytes < least || bytes > mostMemory {
		return fmt.Errorf("use a size of %s to %s, like 1GiB", units.FormatSize(least), units.FormatSize(mostMemory))
	}
	*m = compileMemory(bytes)
	return nil
}

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
