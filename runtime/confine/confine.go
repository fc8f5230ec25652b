// Package confine permanently forbids this process all system calls and files that it does not need. It is the second
// wall around guests, in case a fault of the compiler lets a guest out of the first wall.
//
// Only Linux has the means: no_new_privs, a seccomp filter, and Landlock. On other systems, or if the kernel lacks one
// of these means, Process reports what is missing and applies the rest.
//
//	             guest
//	1  WebAssembly: its own memory, and what the host passes in
//	             │ a fault of the compiler
//	             ▼
//	          this process
//	2  seccomp: the calls in calls_linux.go Landlock: the files in []Rule
//	             │                                │
//	             ▼                                ▼
//	   any other call: SIGSYS, the end     any other file: EACCES
//
// Child processes inherit both restrictions. A forbidden call ends the process with a crash report, in which Forbidden
// finds the call's name.
package confine

// Access is what a process may do with a file, or with a folder and everything in it.
type Access int

// The kinds of access.
const (
	Read    Access = iota // read files and list folders
	Write                 // Read, and make, change, move and remove files and folders
	Modify                // write to existing files
	Execute               // read files and run them as programs
	Tidy                  // remove empty folders
)

// Rule permits an access to the file or folder that is at Path when Process is called. It does not permit access to a
// file or folder that appears there later.
type Rule struct {
	Access Access
	Path   string
}

// Confinement says for each restriction why it does not apply. An error is nil if the restriction applies from now on.
type Confinement struct {
	Calls error // of the filter of system calls, and no_new_privs
	Files error // of the rules for files
}

// Process confines this process and all processes that it starts.
func Process(rules []Rule) Confinement {
	files := restrictFiles(rules) // first, because the filter forbids the calls that it makes
	return Confinement{Calls: filterCalls(), Files: files}
}
