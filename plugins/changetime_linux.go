package plugins

import (
	"io/fs"
	"syscall"
	"time"
)

// changeTime is when the inode last changed. Unlike the modification time nobody can set it back, so
// that it tells a copy that kept its date (cp -p) and its size from the file that it replaced.
func changeTime(info fs.FileInfo) time.Time {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(stat.Ctim.Unix())
	}
	return time.Time{}
}
