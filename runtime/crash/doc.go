// Package crash names the task that crashed a host.
//
// A fault in the compiled code of a guest ends the whole process, since Go recovers no faults outside its own code. Go
// then writes a crash report with the address of the fault. A monitor process waits for that report. It shares a
// [Table] of the guests with the host, and writes one line that names the guest whose memory or guard pages contain the
// address.
//
//	host     Table   [ plugin, tenant, task, addresses | ... ]   an entry for each instance
//	           │ shared memory
//	monitor  Watch ◀── pipe ── Go's text about the crash of the host
//	           └─▶ stderr: quern: the host has crashed (SIGSEGV at 0x7f22a4020000) while plugin "resize"
//	               of tenant "acme" computed for task "4711", beside whose memory that address lies: ...
//
// # Failure
//
// The host also works without a monitor: on systems other than Linux, without memory for the table, or after the
// monitor was killed. Go's report on stderr is then the only information about a crash.
package crash
