package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// searchPaths are the variables that list folders in which programs, libraries and headers are searched.
var searchPaths = []string{
	"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "COMPILER_PATH", "LIBRARY_PATH", "CPATH",
	"C_INCLUDE_PATH",
	"PYTHONPATH", "NODE_PATH",
}

// absolutePath are the folders of a search path without those that are relative: they would be found in the source's
// folder, as the current one is by the empty element of PATH=$PATH:/opt/bin with PATH unset.
func absolutePath(list string) []string {
	return slices.DeleteFunc(filepath.SplitList(list), func(folder string) bool { return !filepath.IsAbs(folder) })
}

// lookPath finds a program: by its path, or by its name in PATH. What it returns is absolute, because programs run in
// another folder.
func lookPath(name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		path, err := filepath.Abs(name)
		if err != nil {
			return "", err
		}
		return exec.LookPath(path)
	}
	for _, folder := range absolutePath(os.Getenv("PATH")) {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// firstProgram returns the first of some programs that works, or the names of those that are there and do not.
func firstProgram(candidates []string, works func(path string) bool) (path string, broken []string) {
	for _, name := range candidates {
		path, err := lookPath(name)
		switch {
		case err != nil:
		case works(path):
			return path, nil
		default:
			broken = append(broken, name)
		}
	}
	return "", broken
}

// command is one of this machine, which searches nothing in the folder that it runs in.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // it is the user's own
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if slices.Contains(searchPaths, name) {
			folders := absolutePath(value)
			if len(folders) == 0 {
				continue // set to nothing, it may mean the current folder
			}
			variable = name + "=" + strings.Join(folders, string(filepath.ListSeparator))
		}
		cmd.Env = append(cmd.Env, variable)
	}
	return cmd
}

// run runs a compiler, in the folder of the source unless the command names another one.
func (b *Builder) run(ctx context.Context, s *Source, cmd *exec.Cmd) error {
	if cmd.Dir == "" {
		cmd.Dir = s.Dir
	}
	if dir, err := filepath.Abs(cmd.Dir); err == nil {
		cmd.Env = append(cmd.Env, "PWD="+dir)
	}
	if cmd.Stderr = b.config.Stderr; cmd.Stdout == nil {
		cmd.Stdout = b.config.Stderr
	}
	cmd.WaitDelay = 5 * time.Second // for its own children
	err := cmd.Run()
	program := filepath.Base(cmd.Path)
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &failed):
		return because(Failed, "%s could not build %s: its messages are above", program, s.Name)
	case err != nil:
		return because(Refused, "%s could not build %s: %w", program, s.Name, err)
	}
	return nil
}

// copyModule writes the module that a compiler made.
func (s *Source) copyModule(from, out string) error {
	binary, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(out, binary, 0o600)
	}
	if err != nil {
		return fmt.Errorf("build %s: %w", s.Name, err)
	}
	return nil
}

// checkAbove refuses what a compiler would use of the folders above the source's, unless it belongs to this user, to
// root or to the owner of the source: in /tmp, for instance, anybody may put it.
func (s *Source) checkAbove() error {
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return because(Usage, "read source: %w", err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return because(Usage, "read source: %w", err)
	}
	for _, start := range []string{dir, resolved} { // compilers go up either
		for folder := filepath.Dir(start); ; folder = filepath.Dir(folder) {
			for _, name := range s.Language.above {
				path := filepath.Join(folder, name)
				if found, err := os.Lstat(path); err == nil && !slices.Contains([]uint32{0, uint32(os.Getuid()), ownerOf(info)}, ownerOf(found)) { //nolint:gosec // a user's number
					return because(Refused, "%s belongs to another user, who would decide how %s is built: remove it, or move the plugin's folder to where only you write", path, s.Name)
				}
			}
			if folder == filepath.Dir(folder) {
				break
			}
		}
	}
	return nil
}

// ownerOf is the number of the user that a file belongs to; 0 where the system does not tell.
func ownerOf(info os.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid
	}
	return 0
}
