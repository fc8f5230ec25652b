// Package listen is for programs that reserve tasks and settle them, such as a host of Quern. A Node is one listener
// ID, with the calls that a listener makes. A Listener runs a Node: it renews the lease, registers for queues, wakes
// its user when a queue may have tasks, and keeps the Tasks that it holds. A Fleet has the calls that listeners make
// for each other, such as reclaiming the tasks of a dead listener. Workers in plain Go use package worker instead.
//
//	node := listen.New(client)
//	err := node.Join(ctx)                      // begins a lease, which Renew extends
//	err = node.Register(ctx, "thumbnails")
//	replies := node.Reserve(ctx, requests)     // each reserved task comes with a Claim
//	errs, err := node.Settle(ctx, "thumbnails", settlements)
//	err = node.Leave(ctx)
//
// # Holding a task
//
// A listener holds a task while the task's ID is in the listener's reserved list, and the task's hash agrees with the
// listener's ID and its Claim: the run, and when the task was created and started. Every script that changes a held
// task checks both. If the claim is lost, the call returns queue.ErrLost and changes nothing. After a settlement, the
// task's hash names the run that settled the task, so that a repeated call gets the same answer.
//
// A listener is alive while its lease runs. After the lease has ended, Fleet.Reclaim takes the listener's tasks. A task
// that had not started goes back to the front of its queue as if it had not been reserved. For a task that had started,
// a crash is counted.
//
// # Failure
//
// A reserve must not be repeated blindly: its reply can be lost after tasks were reserved. Those tasks are in the
// listener's own reserved list, where Node.Held and Node.Adopt find them. Every other call can be repeated if
// queue.IsUnavailable reports true for its error.
package listen
