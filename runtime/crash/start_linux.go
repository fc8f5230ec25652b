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
	"syscall"

	"golang.org/x/sys/unix"
)

// Monitor is a process that waits for the end of this one, and its table.
type Monitor struct {
	Table *Table

	pipe *os.File // this process's crash text
	cmd  *exec.Cmd
	once sync.Once
	err  error
}

// Start starts a monitor by a command line that does nothing but call Watch, and has the crash of this process told to
// it. It writes to this process's stderr. The caller closes it when no guest runs any more.
func Start(command []string) (_ *Monitor, err error) {
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
	m := &Monitor{Table: &Table{memory: memory}}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(memory))
	}
	defer func() { err = errors.Join(err, read.Close()) }()
	m.pipe = write
	m.cmd = exec.CommandContext(context.Background(), command[0], command[1:]...) // it ends by itself
	m.cmd.Stdin, m.cmd.Stderr, m.cmd.ExtraFiles = read, os.Stderr, []*os.File{file}
	m.cmd.Env = []string{}
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it outlives what ends the host's group
	if err := m.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a monitor: %w", err), m.pipe.Close(), unix.Munmap(memory))
	}
	if err := debug.SetCrashOutput(write, debug.CrashOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("hand crashes to the monitor: %w", err), m.Close())
	}
	return m, nil
}

// Close ends the monitor. The table must not be used any more. It may be called twice.
func (m *Monitor) Close() error {
	m.once.Do(func() {
		m.err = errors.Join(debug.SetCrashOutput(nil, debug.CrashOptions{}), m.pipe.Close(), m.cmd.Wait(), unix.Munmap(m.Table.memory))
	})
	return m.err
}

// Watch is all that a monitor does: it waits for the end of the process that has started it, and writes to stderr what it
// knows of a crash.
func Watch(stdin io.Reader, stderr io.Writer) error {
	return watch(stdin, func() ([]byte, error) {
		return unix.Mmap(tableDescriptor, 0, tableSize, unix.PROT_READ, unix.MAP_SHARED)
	}, stderr)
}

// tableDescriptor is where the monitor finds the table: the first of exec.Cmd.ExtraFiles.
const tableDescriptor = 3
