package wasi

import (
	"time"

	"github.com/quern-project/quern/runtime/replay"
)

// Host is the interface through which a System calls its host during one call of a guest. Each method can end the guest
// by a panic, which this package does not recover.
type Host interface {
	// Spend charges the guest for bytes before they are moved.
	Spend(bytes int)
	// Wait sleeps for d. If d is not positive, it can return at once.
	Wait(d time.Duration)
	// Exit ends the guest and does not return.
	Exit(code uint32)
	// Stdout and Stderr take the bytes that the guest writes, at most 1 MiB at a time. p is the guest's memory, valid
	// only until the method returns.
	Stdout(p []byte)
	Stderr(p []byte)
}

// Config holds what a guest can use. Its contents are neither copied nor changed.
type Config struct {
	Host  Host   // required
	Stdin []byte // contents of standard input
	// Args are the arguments, beginning with the program's name. Env are the variables, each as KEY=VALUE. No argument or
	// variable contains a NUL byte.
	Args, Env []string
	Files     *Files // nil if there are none
	// Checkpoint is the contents of the file /checkpoint; nil if there is no such file.
	Checkpoint []byte
	// Tape records what the guest gets from outside, or plays it back; nil for neither.
	Tape *replay.Tape
	// Started is the time at which the guest's monotonic clock is 0. It is at most 290 years ago: the clock is an int64
	// in nanoseconds.
	Started time.Time
}

// System is the WASI state of one call. Only the goroutine of that call uses it.
type System struct {
	host       Host
	stdin      []byte // the part of Config.Stdin that is not read yet
	args, env  []string
	started    time.Time
	tape       *replay.Tape
	root       *node // nil if the guest has no files
	checkpoint *node // nil if there is no checkpoint

	open    []descriptor // descriptors by number
	first   [4]descriptor
	vectors []vector // reused by each call of a function
}

// Init prepares s for another call. It keeps nothing of the previous call.
func (s *System) Init(c Config) {
	*s = System{host: c.Host, stdin: c.Stdin, args: c.Args, env: c.Env, started: c.Started, tape: c.Tape}
	if c.Files != nil && c.Files.root != nil && len(c.Files.root.names) > 0 {
		s.root = c.Files.root
	}
	if c.Checkpoint != nil {
		if s.root == nil {
			s.root = newDirectory(nil, rootInode)
		}
		s.checkpoint = &node{inode: checkpointInode, parent: s.root, contents: c.Checkpoint}
	}
	s.first = [4]descriptor{{kind: stdin}, {kind: stdout}, {kind: stderr}}
	s.open = s.first[:3]
	if s.root != nil {
		s.first[preopened] = descriptor{kind: directory, node: s.root, preopened: true}
		s.open = s.first[:]
	}
}
