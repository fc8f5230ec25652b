//go:build !linux

package crash

import (
	"errors"
	"io"
)

// Monitor is a process that waits for the end of this process, and the table that the two share. This system has no
// monitor.
type Monitor struct{ Table *Table }

// Start fails: there is no monitor on this system.
func Start([]string, func(error)) (*Monitor, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*Monitor) Close() error { return nil }

// Watch reports a crash without a table.
func Watch(stdin io.Reader, stderr io.Writer) error {
	return watch(stdin, func() ([]byte, error) { return nil, nil }, stderr)
}
