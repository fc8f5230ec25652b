// Package confine forbids this process, for good, all system calls and files that it does not need. It is the second
// wall around guests, in case a fault of the compiler lets a guest out of the first.
//
// Only Linux has the means: no_new_privs, a seccomp filter, and Landlock. Elsewhere, and where a kernel lacks one of
// them, Process reports it and applies the others.
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
// Children inherit both. A forbidden call ends the process with a crash report, in which Forbidden finds the call's
// name.
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

// Rule permits an access to the file or folder that is at a path now, not to one that appears or replaces it later.
type Rule struct {
	Access Access
	Path   string
}

// Confinement says for each part why it does not apply; nil if it applies from now on.
type Confinement struct {
	Calls error // the filter of system calls, and no_new_privs
	Files error // the rules for files
}

// Process confines this process and all that it starts.
func Process(rules []Rule) Confinement {
	files := restrictFiles(rules) // first: the filter forbids its calls
	return Confinement{Calls: filterCalls(), Files: files}
}
