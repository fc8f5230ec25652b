// Package queue is the Redis protocol of Quern's task queues and its Go client, shared with Blueque, a Python task queue for very
// long running tasks. It is the only package that knows the protocol's keys, which PROTOCOL.md lists with what bounds each.
//
//	client, err := queue.New("redis://127.0.0.1:6379/0", queue.Config{})
//	id, err := client.Queue("thumbnails").Enqueue(ctx, photo, queue.Options{})
//	task, err := client.Wait(ctx, id) // task.Result
//
// # Where to look
//
//	to produce tasks         Client.Queue, Queue.Enqueue, EnqueueMany with Options; Client.Wait, Task
//	to manage them           Queue.Cancel, Retry, Delete, Purge, List, Stats, Pause, SetLimit; Client.Log, History
//	to work in plain Go      Client.Work, or Client.Listener and Client.Processor
//	to be a host             Client.Node: lease, Reserve, Settle, Release, Progress, AppendLogs, duties; Client.Watch
//	to care for other hosts  Client.Fleet: Nodes, Drain, Leases, Reclaim, Backlogs, Quarantines
//
// # States
//
//	           enqueue                reserve               start
//	(nothing) ───────▶ pending ────────────────▶ reserved ───────▶ started
//	    │                ▲  ▲                        │                │
//	    │ schedule       │  └─── release, reclaim ───┼────────────────┤
//	    ▼          due   │                           │                │
//	 scheduled ──────────┤                           ▼                ▼
//	    ▲                │                      complete   or      failed ──delete, purge──▶ (nothing)
//	    │                └─────────── retry by hand ──────────────────┘
//	    └─ retry, reschedule, reject; reclaim after two crashes ── (reserved, started)
//
// A task that waits, pending or scheduled, fails when it is cancelled or expires. A task that runs is settled: it is complete,
// fails or waits again; a cancelled one does not wait again.
//
// Every arrow is one Lua script (folder scripts), atomic in Redis, which also wakes listeners and waiters. Redis's clock decides
// all times.
//
// # Holding a task
//
// A listener holds a task while the ID is in its reserved list and the hash names the listener and the run of its Claim,
// and the moments at which it was created and started. The script of every change proves that: a lost claim gets ErrLost and changes
// nothing. The hash then says which run settled the task, so that a repeat of it returns the same answer.
//
// A listener lives while its lease runs. When that is over Fleet.Reclaim takes its tasks: those that had not started go to the
// front of their queue as if nothing had been, those that had started count a crash.
//
// # Failure
//
// Redis away, full, loading or read-only: the call fails with an error for which IsUnavailable is true, nothing was half done,
// and the same call may be repeated; except a reserve, whose answer may be lost after it took tasks. Those are in the listener's
// own list, where Node.Held and Node.Adopt find them. Wait, Listen and Work, once it has begun, go on by themselves.
//
// A script leaves or sets aside a key that is missing or of the wrong type: it never blocks the tasks behind it.
package queue
