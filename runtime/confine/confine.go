// Package confine takes from this process what it does not need of the operating system, for good: the
// system calls that are not on its list, and the files that are not named. It is the second wall around
// guests, for the day when a compiler's fault lets one out of the first.
//
// Linux alone has the means: no_new_privs, a seccomp filter, and Landlock. Elsewhere, and where a kernel
// lacks one of them, Process says so, and what there is holds.
//
//	             guest
//	1  WebAssembly: its own memory, and what the host passes in
//	             │ a fault of the compiler
//	             ▼
//	          this process
//	2  seccomp: the calls in calls.go       Landlock: the files in []Rule
//	             │                                │
//	             ▼                                ▼
//	   any other call: SIGSYS, the end     any other file: EACCES
//
// Children inherit both. A forbidden call ends the process with a crash report, in which Forbidden finds
// the call's name.
package confine

// Access is what may be done with a file, or with a folder and all that is in it.
type Access int

// The kinds of access.
const (
	Read    Access = iota // read files and list folders
	Write                 // read, and also make, change, move and remove files and folders
	Modify                // write to files that are there
	Execute               // read files and run them as programs
	Tidy                  // remove empty folders
)

// Rule permits an access. A rule of a path that does not exist permits nothing, also when it exists later;
// and one that is replaced by another file or folder is another one.
type Rule struct {
	Access Access
	Path   string
}

// Confinement tells what holds from now on: nil, or why it does not.
type Confinement struct {
	Calls error // the filter of system calls, and no_new_privs
	Files error // the rules for files
}

// Process confines this process and all that it starts.
func Process(rules []Rule) Confinement { return process(rules) }
