// Package listen is for programs that reserve tasks and settle them, such as a host of Quern. A Node is one listener ID, with
// the calls of a listener. A Listener leads its life: it renews the lease, registers for queues, passes messages on, and keeps
// the Tasks that it holds. A Fleet does what listeners do for each other. Workers in plain Go use package worker instead.
//
//	node := listen.New(client)
//	err := node.Join(ctx)                      // with a lease, which Renew keeps
//	err = node.Register(ctx, "thumbnails")
//	replies := node.Reserve(ctx, requests)     // Run: the claim on each task
//	errs, err := node.Settle(ctx, "thumbnails", settlements)
//	err = node.Leave(ctx)
//
// # Holding a task
//
// A listener holds a task while the ID is in its reserved list and the hash names the listener and the run of its Claim, and the
// moments at which it was created and started. The script of every change proves that: a lost claim gets queue.ErrLost and changes
// nothing. The hash then says which run settled the task, so that a repeat of it returns the same answer.
//
// A listener lives while its lease runs. When that is over Fleet.Reclaim takes its tasks: those that had not started go to the front
// of their queue as if nothing had been, those that had started count a crash.
//
// # Failure
//
// A reserve must not be repeated blindly: its answer may be lost after it took tasks. Those are in the listener's own list, where
// Node.Held and Node.Adopt find them. Every other call may be repeated when queue.IsUnavailable is true of its error.
package listen
