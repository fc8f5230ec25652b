package wasi

import "time"

// Host is what the functions need of the call that they run for. Spend, Wait, Exit, Stdout and Stderr
// may end the guest: they then panic with a value of the host's own, which passes through this package.
type Host interface {
	// Spend charges the guest for bytes that are about to be moved for it.
	Spend(bytes int)
	// Wait sleeps; without a positive duration it lets others run and returns.
	Wait(d time.Duration)
	// Exit ends the guest and does not return.
	Exit(code uint32)
	// Stdout and Stderr take what the guest writes, at most 1 MiB at a time. It is valid during the
	// call only, for it is the guest's memory.
	Stdout(p []byte)
	Stderr(p []byte)
}

// Config says what a guest finds. All of it is read only, and nothing is copied.
type Config struct {
	// Host is required.
	Host Host
	// Stdin is what standard input holds.
	Stdin []byte
	// Args are the arguments, the program's name first. Env are variables such as KEY=VALUE. None of
	// them holds a NUL.
	Args, Env []string
	// Files are there at their paths. Default nil, which is none.
	Files *Files
	// Checkpoint is the file /checkpoint. Default nil, which is no such file.
	Checkpoint []byte
	// Started is the zero of the monotonic clock, not more than 290 years ago.
	Started time.Time
}

// System is what one guest sees during one call. It belongs to the goroutine of that call.
type System struct {
	host       Host
	stdin      []byte // what is not read yet
	args, env  []string
	started    time.Time
	root       *node // nil if the guest has no files
	checkpoint *node // nil if there is none

	open    []descriptor // by number
	first   [4]descriptor
	vectors []vector // room for the vectors of one call
}

// New makes the system of one call.
func New(c Config) *System {
	s := &System{}
	s.Init(c)
	return s
}

// Init makes s the system of another call, of which nothing is left from the one before.
func (s *System) Init(c Config) {
	*s = System{host: c.Host, stdin: c.Stdin, args: c.Args, env: c.Env, started: c.Started}
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
