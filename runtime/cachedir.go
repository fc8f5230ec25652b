package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ownerOnly is the mode of the cache directory and of everything in it.
const ownerOnly = 0o700

// makePrivate makes the cache directory if it is not there, and refuses one that others could write
// code into, which this process would execute, or could have made.
func makePrivate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), ownerOnly); err != nil {
		return fmt.Errorf("make cache directory %q: %w", dir, err)
	}
	if err := os.Mkdir(dir, ownerOnly); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make cache directory %q: %w", dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at cache directory %q: %w", dir, err)
	}
	const other = "name another directory, or none to compile without a cache"
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return refuseDir(dir, "is a symbolic link", "name the directory that it points to")
	case !info.IsDir():
		return refuseDir(dir, "is not a directory", other)
	case !isOurs(info):
		return refuseDir(dir, "belongs to another user", other)
	case info.Mode().Perm()&0o077 != 0:
		return refuseDir(dir, fmt.Sprintf("is open to group or others (mode %04o)", info.Mode().Perm()),
			"it holds code that is executed; if nobody else has used it, run chmod 700 "+dir)
	default:
		return nil
	}
}

func refuseDir(dir, what, remedy string) error {
	return fmt.Errorf("%w: %q %s: %s", ErrCacheDir, dir, what, remedy)
}
