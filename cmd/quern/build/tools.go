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

// searchPaths lists the environment variables that name folders in which programs, libraries and headers are searched.
var searchPaths = []string{
	"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "COMPILER_PATH", "LIBRARY_PATH", "CPATH",
	"C_INCLUDE_PATH",
	"PYTHONPATH", "NODE_PATH",
}

// absolutePath returns the folders of a search path that are absolute. Relative folders would be searched below the
// source's folder. So would the empty element of PATH=$PATH:/opt/bin if PATH was not set: it means the current folder.
func absolutePath(list string) []string {
	return slices.DeleteFunc(filepath.SplitList(list), func(folder string) bool { return !filepath.IsAbs(folder) })
}

// lookPath finds a program by its path, or by its name in PATH. It returns an absolute path, because programs run in
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

// firstProgram returns the path of the first candidate that works. If none works, it returns the names of the
// candidates that exist.
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

// command returns a command that runs a program of this machine. The program finds no other programs or libraries in
// the folder in which it runs.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // it is the user's own
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if slices.Contains(searchPaths, name) {
			folders := absolutePath(value)
			if len(folders) == 0 {
				continue // an empty search path can mean the current folder
			}
			variable = name + "=" + strings.Join(folders, string(filepath.ListSeparator))
		}
		cmd.Env = append(cmd.Env, variable)
	}
	return cmd
}

// run runs a compiler in cmd.Dir, by default the folder of the source.
func (b *Builder) run(ctx context.Context, s *Source, cmd *exec.Cmd) error {
	if cmd.Dir == "" {
		cmd.Dir = s.Dir
	}
	if dir, err := filepath.Abs(cmd.Dir); err == nil {
		cmd.Env = append(cmd.Env, "PWD="+dir)
	}
	if cmd.Stderr == nil {
		cmd.Stderr = b.config.Stderr
	}
	if cmd.Stdout == nil {
		cmd.Stdout = cmd.Stderr
	}
	cmd.WaitDelay = 5 * time.Second // for children that keep its output open
	err := cmd.Run()
	program := filepath.Base(cmd.Path)
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &failed):
		return because(Failed, "%s could not build %s: "+above, program, s.Name)
	case err != nil:
		return because(Refused, "%s could not build %s: %w", program, s.Name, err)
	}
	return nil
}

// copyModule copies the module that a compiler made to out.
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

// checkAbove refuses the source if its compiler would use a file or folder from above the source's folder that belongs
// to another user. Files of this user, of root and of the owner of the source are allowed. In /tmp, for instance,
// anybody could put a file above the source.
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
	for _, start := range []string{dir, resolved} { // compilers go up from either folder
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

// ownerOf returns the ID of the user who owns a file; 0 where the system does not report it.
func ownerOf(info os.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid
	}
	return 0
}
