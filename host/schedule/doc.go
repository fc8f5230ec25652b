// Package schedule decides which task runs next on a host: which queue gets a free slot, whether the memory suffices,
// and which tasks are reserved before a slot is free. It knows neither Redis nor plugins. Events report what happened,
// and Plan returns a Round that the host carries out.
//
//	messages, polls ──Announced, Polled, PolledEmpty──▶ ┌───────────┐
//	registrations ──Serve, Leave, Reconcile, Abandon──▶ │ Scheduler │ ──Plan──▶ Round, for each source:
//	results ──Ended, Settled, Block───────────────────▶ │           │            Allocations  reserve for these
//	replies to a Round ──Reserved, Cancel─────────────▶ └───────────┘            Begin        tasks with a slot
//	                                                       │    ▲                Return       tasks that waited too long
//	                                             admission ▼    │ measured, evicted
//	                                                      Evictor ──▶ Cache
//
// Plan does not work on a copy of the state, because tasks end meanwhile on many goroutines, and a host may serve
// thousands of queues. It commits slots and memory while it decides, under the Scheduler's one lock. But it does no
// I/O, starts no goroutine or timer, and gets the time as an argument: the same events lead to the same Round.
//
// # States of a queue
//
// A queue's Backlog is what the host knows of the queue's tasks in Redis. Tasks are reserved from queues that are Ready
// or Seen.
//
//	event                                         Empty   Ready   Seen     Stalled
//	a message: Announced                          Ready   Ready   Seen     Seen
//	a poll saw tasks: Polled                      Seen    Ready   Ready    Seen
//	a poll saw none: PolledEmpty                  Empty   Empty   Empty    Empty
//	a reserve brought tasks, perhaps not all      Ready   Ready   Ready    Ready
//	a reserve brought the last tasks              Empty   Empty   Empty    Empty
//	a reserve brought none, or failed             Ready   Ready   Seen     Seen     if there may be tasks
//	a reserve brought none                        Empty   Empty   Stalled  Stalled
//
// PolledEmpty changes nothing if another event came after the poll had begun. There may be more tasks after a reserve
// if it brought as many as were asked for, if an event came meanwhile, or if it dropped or passed over IDs.
//
// Whether a queue can be asked for tasks also depends on these:
//
//	serving   Serve           it can be asked
//	leaving   Leave           it is only reconciled; then it is dropped
//	unsure    Reconcile,      the next allocation compares its reserved list with the host's tasks; a queue that is served
//	          Leave, failure  anew stays unsure
//	blocked   Block           nothing is asked until its results can be written
//	paused    Refused         nothing is asked for 50 ms to 2 s
//	returning a late task     nothing is reserved until the task is back at the front of the queue
//
// A queue is idle if its Backlog is Empty or Stalled, it has no task on this host, and it is not unsure. No plan looks
// at an idle queue.
//
// # Fairness
//
// A free slot goes to the tenant with the lowest virtual time, and then to the queue of this tenant with the lowest
// virtual time. A virtual time is what the tasks have cost, divided by the weight. A task costs the largest of its
// shares of the host: of the processors, the memory and the slots. It is charged while it runs, and exactly when it
// ends. A tenant or queue whose tasks begin to wait starts at no less than the lowest virtual time of the others, so it
// gets nothing for the time in which it had no tasks. Tasks that have slots count for the next 50 ms in advance, so
// slots that are free together are spread.
//
// If there are several sources, each gets at most half of the slots in one plan: a source whose Redis hangs must not
// keep them all. A slot waits for a tenant whose turn it is while a reserve of the tenant is on its way: three times as
// long as its reserves take, 2 to 20 ms. Results that wait to be settled count like used slots. A queue of short tasks
// keeps its slot for a turn of 4 ms, and is charged when the turn ends.
//
// # Failure
//
// A source that cannot reserve is passed over; its tasks run on. Every allocation ends with Reserved, Cancel or
// Release. Tasks that were reserved ahead go back to their queue if they get no slot within 20 ms, or when the host
// ends.
package schedule
