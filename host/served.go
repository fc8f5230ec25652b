package host

import (
	"context"
	"time"

	"github.com/quern-project/quern/plugins"
)

// place names a queue of a tenant.
type place struct{ tenant, queue string }

// source reserves the tasks of a session's queues: see intake.
type source interface {
	// available tells whether it may reserve now, reserving whether a reserve is on its way.
	available(now time.Time) bool
	reserving() bool
	// begin begins a reserve, unless it may not. reserve then asks for what is allocated, and closes or cancels each allocation.
	begin() bool
	reserve(ctx context.Context, allocations []*allocation)
}

// served is a queue that this host serves, as the scheduler sees it; guarded by the scheduler's mu.
type served struct {
	place
	source source
	// ready means that there may be work: a message came, the poll saw some, or the last reserve brought as much as was asked.
	ready bool
	// woken is the scheduler's count of wakes when ready was last set from outside. An answer of Redis to an older question
	// knows nothing of it.
	woken uint64
	// reconcile means that the reserved list may hold tasks that the host does not know.
	reconcile bool
	// left means that the session serves the queue no more: it is dropped once it is reconciled.
	left bool
	// blocked means that results of the queue's tasks cannot be written: no more are taken until they can.
	blocked bool
	// refused is the pause after Redis refused to reserve from this queue, but not from others.
	refused   backoff
	running   int    // slots that run its tasks, or are allocated to it
	unsettled int    // its tasks that have ended but are not settled in Redis
	turn      uint64 // when it was last given a slot
}

// allocation lets a source reserve len(shares) tasks of one queue for one version of its plugin. The version is retained for
// the allocation, and once more for each task that comes of it. With reconcile the queue's reserved list is looked through
// first; then there may be no shares, and no version.
type allocation struct {
	served    *served
	source    source
	version   *plugins.Version
	shares    []*share
	reconcile bool
	wakes     uint64 // the scheduler's count when it was made
}

// release gives back the allocation's own hold of its version.
func (a *allocation) release() {
	if a.version != nil {
		a.version.Release()
	}
}

// slot is what a running task occupies.
type slot struct {
	served  *served
	version *plugins.Version
	share   *share
}

// plugin names a plugin; tenant is "" for one that serves every tenant.
type plugin struct{ tenant, name string }

func pluginOf(v *plugins.Version) plugin { return plugin{v.Tenant, v.Name} }
