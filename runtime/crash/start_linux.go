package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Monitor is a process that waits for the end of this process, and the table that the two share.
type Monitor struct {
	Table *Table

	pipe    *os.File // takes this process's crash report
	ended   chan error
	closing atomic.Bool
	once    sync.Once
}

// Start starts a monitor of this process. command is the command line of a program that only calls Watch. The monitor
// writes to this process's stderr. The caller closes the Monitor when no guest runs any more. lost is called on another
// goroutine if the monitor ends earlier.
func Start(command []string, lost func(error)) (_ *Monitor, err error) {
	fd, err := unix.MemfdCreate("quern-crash", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a memfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "quern-crash")
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(tableSize); err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(fd, 0, tableSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", tableSize, err)
	}
	m := &Monitor{Table: &Table{memory: memory}, ended: make(chan error, 1)}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(memory))
	}
	defer func() { err = errors.Join(err, read.Close()) }()
	m.pipe = write
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...) // the monitor ends by itself
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = read, os.Stderr, []*os.File{file}
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it survives a signal to the host's process group
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a monitor: %w", err), m.pipe.Close(), unix.Munmap(memory))
	}
	go func() {
		err := cmd.Wait()
		if !m.closing.Load() {
			lost(err)
			err = nil
		}
		m.ended <- err
	}()
	if err := debug.SetCrashOutput(write, debug.CrashOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("hand crashes to the monitor: %w", err), m.Close())
	}
	return m, nil
}

// Close ends the monitor. The table must not be used any more. A second call of Close does nothing.
func (m *Monitor) Close() (err error) {
	m.once.Do(func() {
		m.closing.Store(true)
		err = errors.Join(debug.SetCrashOutput(nil, debug.CrashOptions{}), m.pipe.Close(), <-m.ended,
			unix.Munmap(m.Table.memory))
	})
	return err
}

// Watch does the work of a monitor. It waits for the end of the process that has started the monitor, and reports a
// crash to stderr.
func Watch(stdin io.Reader, stderr io.Writer) error {
	return watch(stdin, func() ([]byte, error) {
		return unix.Mmap(tableDescriptor, 0, tableSize, unix.PROT_READ, unix.MAP_SHARED)
	}, stderr)
}

// tableDescriptor is the monitor's file descriptor for the table: the first of exec.Cmd.ExtraFiles.
const tableDescriptor = 3
