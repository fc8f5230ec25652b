//go:build !linux || !(amd64 || arm64)

package confine

import (
	"errors"
	goruntime "runtime"
)

const platform = goruntime.GOOS + " on " + goruntime.GOARCH

func filterCalls() error { return errors.New("no filter of system calls for " + platform) }

func restrictFiles([]Rule) error { return errors.New("no rules for files for " + platform) }
