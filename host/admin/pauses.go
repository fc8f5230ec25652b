package admin

import (
	"context"

	"github.com/quern-project/quern/sdk/queue/manage"
)

// Pauses reads, begins and ends pauses.
type Pauses interface {
	// List reads the pauses of the tenant, its queues and their keys, and its plugins, not those of schedules and
	// subscriptions.
	List(context.Context) ([]manage.Pause, error)
	// Pause begins a pause. Over the API, Who is the caller whatever p says.
	Pause(ctx context.Context, p manage.Pause) error
	// Resume ends a pause. It is no error if there is none.
	Resume(ctx context.Context, p manage.Pause) error
	schedulePauses
}

// schedulePauses are the pauses of schedules, which are not kept among those of queues.
type schedulePauses interface {
	PauseSchedule(ctx context.Context, id string) error
	ResumeSchedule(ctx context.Context, id string) error
}

// Pauses returns the pauses of the tenant.
func (t *Direct) Pauses() Pauses {
	return struct {
		manage.Pauses
		schedulePauses
	}{t.Manager.Pauses(), t.Client}
}
