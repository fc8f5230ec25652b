package compile

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ownerOnly is the mode of the cache directory and of the directories in it.
const ownerOnly = 0o700

// makePrivate makes the cache directory if it does not exist. It refuses one that others own or can access: this process
// executes the code in it.
func makePrivate(dir string) error {
	made := os.MkdirAll(dir, ownerOnly)
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("make cache directory %q: %w", dir, cmp.Or(made, err))
	}
	var what string
	remedy := "name another directory, or none to compile without a cache"
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		what, remedy = "is a symbolic link", "name the directory that it points to"
	case !info.IsDir():
		what = "is not a directory"
	case !isOurs(info):
		what = "belongs to another user"
	case info.Mode().Perm()&0o077 != 0:
		what = fmt.Sprintf("is open to group or others (mode %04o)", info.Mode().Perm())
		remedy = "it holds code that is executed; if nobody else has used it, run chmod 700 " + dir
	default:
		return nil
	}
	return fmt.Errorf("%w: %q %s: %s", ErrDirectory, dir, what, remedy)
}

// isOurs reports whether a file belongs to the user of this process.
func isOurs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
