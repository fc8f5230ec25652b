//go:build !linux || !(amd64 || arm64)

package confine

import (
	"errors"
	goruntime "runtime"
)

func process([]Rule) Confinement {
	return Confinement{
		Calls: errors.New("no filter of system calls for " + goruntime.GOOS + " on " + goruntime.GOARCH),
		Files: errors.New("no rules for files for " + goruntime.GOOS + " on " + goruntime.GOARCH),
	}
}
