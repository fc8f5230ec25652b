// Package crash names the task that a host has died of.
//
// A fault in the compiled code of a guest ends the whole process, for Go cannot recover what happens outside of its
// own code. What is left is the text that Go writes then, with the address of the fault, and a [Table]: memory that is
// shared with a process which does nothing but wait for that text. It finds whose memory the address lies beside, and
// says so in one line.
//
//	host     Table   [ plugin, tenant, task, addresses | ... ]   an entry for each instance
//	           │ shared memory
//	monitor  Watch ◀── pipe ── Go's text about the crash of the host
//	           └─▶ stderr: quern: the host has crashed (SIGSEGV at 0x7f22a4020000) while plugin "resize"
//	               of tenant "acme" computed for task "4711", beside whose memory that address lies: ...
//
// # Failure
//
// Where there is no monitor (other systems than Linux, no memory for the table, a monitor that was killed), a host works
// as well, and what Go writes to stderr is all that is known of its crash.
package crash
