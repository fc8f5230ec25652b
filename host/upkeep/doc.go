// Package upkeep has the duties that hosts do for a whole tenant, whichever host runs its tasks. A host does them in
// its session for the tenant. Package host makes and starts the duties, and does the work that concerns only a host's
// own tasks and queues.
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
// Where only one host works, it first takes a term of the duty in Redis (listen.Node.TakeDuty). A term ends by itself,
// so that a host that dies does not block the work. Under load, a host works for half of the term and then gives it
// back, so that other hosts get it too. Every step is a script that can safely run twice or on two hosts. Terms only
// save work; no duty relies on them.
//
// # Failure
//
// A run that fails is repeated after a pause that grows from 50 ms to 2 s, and is reported to Health. An error about
// one queue, one schedule or one publication does not stop the work on the others. The next poll or term finds what a
// run left undone.
//
// Recovery treats the listener of an expired lease as dead only if this session has renewed its own lease for a whole
// lease length (Steadiness), because after an outage of Redis all leases have expired. After Redis's clock was set,
// Recovery also waits until all live listeners have renewed their leases.
package upkeep
