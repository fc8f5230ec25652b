// Package crash names the task that crashed a host.
//
// A fault in the compiled code of a guest ends the whole process, since Go recovers no faults outside its own code. Go
// writes a text with the address of the fault. A monitor process waits for that text and shares a [Table] of the guests
// with the host. It writes one line that names the guest beside whose memory the address lies.
//
//	host     Table   [ plugin, tenant, task, addresses | ... ]   an entry for each instance
//	           │ shared memory
//	monitor  Watch ◀── pipe ── Go's text about the crash of the host
//	           └─▶ stderr: quern: the host has crashed (SIGSEGV at 0x7f22a4020000) while plugin "resize"
//	               of tenant "acme" computed for task "4711", beside whose memory that address lies: ...
//
// # Failure
//
// Without a monitor (on other systems than Linux, without memory for the table, after somebody killed it), the host
// works too. Then Go's text on stderr is all that is known of a crash.
package crash
