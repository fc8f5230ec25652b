// Package upkeep is the duties that hosts do for a whole tenant, whichever host runs its tasks. A host does each of
// them in a session; the package host makes and starts them, and has the work that concerns a host's own tasks and
// queues.
//
//	            works when                            on                            if the host dies
//	Mover       a poll finds tasks due or expired     one host, up to 2.5 s a term  another host, within 5 s
//	Recovery    a lease ends; once a lease            one host, up to 0.5 s a term  another host, within 1 s
//	  unleased  once a minute                         one host, a minute's term     another host, within a minute
//	Ticker      a tick is due; a schedule changed     one host, up to 2.5 s a term  another host, within 5 s
//	Housekeeper once a minute                         one host, a minute's term     another host, within a minute
//	Publisher   a task published as it completed      the host of the task          the host with the term
//	  left over every 10 s                            one host, 10 s a term         another host, within 10 s
//	Declarer    its plugins change; once a minute     each host, for its plugins    the declarations stay for days
//	  absent    once a minute                         one host, a minute's term     another host, within a minute
//	Advancer    a task ended that others wait for     each host, the first in time  the others do it
//
// Where one host works, it takes a term of the duty in Redis (listen.Node.TakeDuty). A term ends by itself, so that a
// host that dies keeps nobody from the work; under load, a host that is done with its half gives the term back, so that
// others get it too. Every step is a script that may run twice or on two hosts: a term saves work, no duty relies on
// it.
//
// # Failure
//
// A run that fails is repeated after a pause that grows from 50 ms to 2 s, and reported to Health. An error about one
// queue, one schedule or one publication does not stop the work on the others. What a run left undone, the next poll or
// term finds again.
//
// Recovery takes an expired lease for a dead host only if this session renewed its own lease for a whole lease
// (Steadiness): after an outage of Redis all leases have expired. After Redis's clock was set, it waits likewise until
// all have renewed.
package upkeep
