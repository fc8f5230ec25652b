// Package queue is the Go client of Quern's task queues in Redis. The protocol is shared with Blueque, a Python task
// queue for very long running tasks. Only the packages of this folder use the protocol's Redis keys. PROTOCOL.md lists
// every key, and what bounds its size.
//
//	client, err := queue.New("redis://127.0.0.1:6379/0", queue.Config{})
//	id, err := client.Queue("thumbnails").Enqueue(ctx, photo, queue.Options{})
//	task, err := client.Wait(ctx, id) // task.Result
//
// # Where to look
//
//	to produce tasks       Client.Queue, Queue.Enqueue and EnqueueMany with Options; Client.Wait, Task
//	to change them         Queue.Cancel, Retry and Delete; Client.Retry and ChangeAll; Queue.Pause and SetLimit
//	to publish             Client.Publish, Subscribe
//	to repeat tasks        Client.PutSchedule, SyncSchedules
//	to work in plain Go    package worker
//	to be a host           package listen
//	to list and purge      package manage
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
// A task that waits, pending or scheduled, fails when it is cancelled or expires. When a run ends, the task is settled:
// it completes, fails or waits again. A cancelled task does not wait again.
//
// Every arrow is one Lua script (internal/store/scripts), which Redis executes atomically. The scripts also wake
// listeners and waiters. All times are by Redis's clock.
//
// # Failure
//
// If Redis is unreachable, full, loading or read-only, a call fails with an error for which IsUnavailable is true. No
// task is left half changed, and the same call can be repeated. Wait repeats its reads by itself.
//
// If a task's key is missing or has the wrong type, scripts skip the task, so a damaged task never blocks the tasks
// behind it.
package queue
