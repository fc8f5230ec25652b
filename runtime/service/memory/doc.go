// Package memory is the services of handlers in this process's memory, for runs without a Redis and for tests: a store
// of buckets, a checkpoint, secrets, and a record of what was enqueued. What they allow, refuse and answer is what the
// host's own do; what they hold is forgotten with them.
//
//	store := memory.NewStore()
//	services := service.Set{KV: store.For(grants), Checkpoint: &memory.Checkpoint{}, Enqueue: memory.NewEnqueuer("local", check)}
//
// They never answer ErrUnavailable or ErrLost: nothing is behind them that may be away, and nobody else has the task.
package memory
