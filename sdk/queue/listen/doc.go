// Package listen is for programs that reserve tasks and settle them, such as a host of Quern. A Node is one listener
// ID, with the calls that a listener makes. A Listener runs a Node: it renews the lease, registers for queues, passes
// messages on, and keeps the Tasks that it holds. A Fleet has what listeners do for each other. Workers in plain Go use
// package worker instead.
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
// A listener holds a task while the task's ID is in its reserved list, and the task's hash agrees with the listener's
// Claim: the listener, the run, and when the task was created and started. The script of every change proves that: with
// a lost claim it returns queue.ErrLost and changes nothing. After a settlement the hash names the run that settled the
// task, so that a repeated call gets the same answer.
//
// A listener is alive while its lease runs. After that, Fleet.Reclaim takes its tasks. A task that had not started goes
// back to the front of its queue as if it had not been reserved. For a task that had started, a crash is counted.
//
// # Failure
//
// A reserve must not be repeated blindly: its answer may be lost after tasks were reserved. Those tasks are in the
// listener's own reserved list, where Node.Held and Node.Adopt find them. Every other call may be repeated if
// queue.IsUnavailable reports true for its error.
package listen
