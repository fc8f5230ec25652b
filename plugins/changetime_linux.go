package plugins

import (
	"io/fs"
	"syscall"
	"time"
)

// changeTime returns when the inode last changed. Unlike the modification time, this time cannot be set back: it shows
// that a file was replaced even if the new file has the same date (cp -p) and size.
func changeTime(info fs.FileInfo) time.Time {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(stat.Ctim.Unix())
	}
	return time.Time{}
}
