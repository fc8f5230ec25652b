//go:build unix

package runtime

import (
	"io/fs"
	"os"
	"syscall"
)

func isOurs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
