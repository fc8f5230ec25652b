// Package queue is the Redis protocol of Quern's task queues and its Go client: what producers,
// hosts and workers written in plain Go share with Blueque, a Python task queue for very long
// running tasks. It is the only place that knows the protocol's keys.
//
//	client, err := queue.New("redis://127.0.0.1:6379/0", queue.Config{})
//	id, err := client.Queue("thumbnails").Enqueue(ctx, photo, queue.Options{})
//	task, err := client.Wait(ctx, id) // task.Result
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
// What waits, pending or scheduled, fails when it is cancelled or expires. What runs is complete, fails
// or waits again as it is settled; a cancelled one does not wait again.
//
// Every arrow is one Lua script (folder scripts), atomic in Redis, which also wakes whom it
// concerns. Redis's clock decides all times.
//
// # What Redis holds
//
// NS is the tenant, Q a queue, ID a task, L a listener. Blueque's own keys:
//
//	NS_pending_tasks_Q        list  IDs, in by LPUSH, out by RPOPLPUSH
//	NS_reserved_tasks_Q_L     list  IDs that L holds, newest at the head
//	NS_started_tasks_Q        set   "L PID ID" of what runs
//	NS_complete_tasks_Q       list  finished IDs, newest at the head
//	NS_failed_tasks_Q         list  the same of what failed
//	NS_scheduled_tasks_Q      zset  IDs by the time they are due
//	NS_listeners_Q            set   listener IDs
//	NS_queues                 zset  queues by their number of listeners
//	NS_task_ID                hash  the task
//
// Quern's own, with what bounds each:
//
//	NS_channel_Q, NS_done_ID  channels, empty messages: work in Q; ID is finished
//	NS_control                channel, empty messages: look at cancel marks and drains
//	NS_nodes                  zset  listeners by the end of their lease; one entry a listener
//	NS_node_L                 hash  what L says of itself; lives three leases
//	NS_tasks_Q                zset  IDs by creation; one entry a task that exists
//	NS_keys_Q                 zset  IDs by key and by uniqueness; two entries a task at most
//	NS_pending_P_Q            list  pending tasks of the priority P (three digits) other than 050
//	NS_priorities_Q           set   which of these lists may hold something; at most 100 entries
//	NS_expiry_Q               zset  IDs by when they expire; one entry a task with max_age or deadline
//	NS_unique_Q_H             string the task that holds a uniqueness; lives as long as that
//	NS_paused                 set   queues that hosts leave alone; at most one entry a queue
//	NS_crashes                hash  plugin versions by the listeners that died over them; lives a day
//	NS_limits                 hash  queues by their greatest length; at most one field a queue
//	NS_bytes_ID               hash  checkpoint, parameters and result that are not UTF-8; deleted with the task
//	NS_log_ID                 list  the last 1,000 lines and 64 KiB; deleted with the task
//	NS_attempts_ID            list  the last 20 runs that were not the task's last; deleted with the task
//	NS_stats_Q                hash  counters by status and reason; a dozen fields
//	NS_purged_Q               hash  what purge passed over at the old ends; two fields, lives an hour
//	NS_sample                 string what the queues hold, a line each; lives 30 s
//	NS_duty_NAME              string who does a fleet-wide duty now; lives six leases at most, or a minute
//	NS_version                string the number of this protocol
//
// # Holding a task
//
// A listener holds a task while the ID is in its reserved list and the hash names it and the run it
// has. Whatever ends or moves a task proves that in its script: a stale holder gets ErrLost and
// changes nothing. A settle leaves its mark in the hash, so that a repeat of it finds its own answer.
//
// A listener lives while its lease runs. When it is over Client.Reclaim takes its tasks from it: what
// had not started goes to the front of its queue as if nothing had been, what had started counts a crash.
//
// # Failure
//
// Redis away, full, loading or read-only: the call fails with an error for which IsUnavailable is
// true, nothing was half done, and the same call may be repeated; only a reserve may not, because
// its answer may have been lost after it took tasks. Those are in the listener's own list, where
// Node.Held and Node.Adopt find them. Wait, Listen and Work, once it has begun, go on by themselves.
//
// What a script finds missing or of the wrong kind it leaves alone or puts aside: it never blocks
// the tasks behind it.
package queue
