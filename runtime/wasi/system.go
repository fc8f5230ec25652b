package wasi

import "time"

// Host is the host's side of one call. Each method may end the guest by a panic, which passes through this package.
type Host interface {
	// Spend charges the guest for bytes before they are moved.
	Spend(bytes int)
	// Wait sleeps; without a positive duration it only lets others run.
	Wait(d time.Duration)
	// Exit ends the guest and does not return.
	Exit(code uint32)
	// Stdout and Stderr take what the guest writes, at most 1 MiB at a time. The bytes are the guest's memory, valid
	// during the call only.
	Stdout(p []byte)
	Stderr(p []byte)
}

// Config holds what a guest can use. All of it is read only and not copied.
type Config struct {
	Host  Host   // required
	Stdin []byte // contents of standard input
	// Args are the arguments, the program's name first. Env are variables such as KEY=VALUE. Neither may contain a NUL.
	Args, Env []string
	Files     *Files // default none
	// Checkpoint is the contents of the file /checkpoint. Default nil: no such file.
	Checkpoint []byte
	// Started is the zero of the monotonic clock, at most 290 years ago.
	Started time.Time
}

// System is the WASI state of one call. It belongs to the goroutine of that call.
type System struct {
	host       Host
	stdin      []byte // not read yet
	args, env  []string
	started    time.Time
	root       *node // nil if the guest has no files
	checkpoint *node // nil if there is none

	open    []descriptor // by number
	first   [4]descriptor
	vectors []vector // reused by each call of a function
}

// Init prepares s for another call. Nothing of the call before is left.
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
