package manage

import (
	"context"
	"slices"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Mover exports, imports and deletes a whole tenant.
type Mover struct{ tenant *Manager }

// NewMover returns the Mover of a tenant.
func NewMover(m *Manager) Mover { return Mover{m} }

// The reasons of a Mover's pauses.
const (
	ReasonExport   = "an export"
	ReasonImport   = "an import"
	ReasonDeletion = "its deletion"
)

// Pause stops the tenant from taking and from accepting tasks, for one of the reasons above. A pause that lasts already
// stays as it is.
func (o Mover) Pause(ctx context.Context, who, reason string) error {
	lasting, err := o.pauses(ctx)
	for _, accepting := range []bool{true, false} {
		if err == nil && !slices.ContainsFunc(lasting, func(p Pause) bool { return p.Accepting == accepting }) {
			err = o.tenant.Pauses().Pause(ctx, Pause{Accepting: accepting, Who: who, Reason: reason})
		}
	}
	return err
}

// Resume ends the pauses of a Mover, also of one that was interrupted, and no others.
func (o Mover) Resume(ctx context.Context) error {
	lasting, err := o.pauses(ctx)
	for _, p := range lasting {
		if err == nil && p.ofMover() {
			err = o.tenant.Pauses().Resume(ctx, p)
		}
	}
	return err
}

// pauses lists the pauses of the whole tenant.
func (o Mover) pauses(ctx context.Context) ([]Pause, error) {
	all, err := o.tenant.Pauses().List(ctx)
	return slices.DeleteFunc(all, func(p Pause) bool { return p.scope() != store.TenantScope }), err
}

// ofMover reports whether a Mover began the pause.
func (p Pause) ofMover() bool {
	return p.scope() == store.TenantScope && slices.Contains([]string{ReasonExport, ReasonImport, ReasonDeletion}, p.Reason)
}

// Export writes all keys of the tenant to a new file, except what says who lives now: leases, duties, the sample.
// It writes FILE.part first; if that exists, from an export that was interrupted, it goes on there as long as the
// server is the same. Keys that change meanwhile are as they were at some moment of the export, each at its own:
// it is no snapshot, unless the tenant is paused and nothing runs. report is called after each block.
func (o Mover) Export(ctx context.Context, path string, report func(Moved)) (Moved, error) {
	return o.tenant.export(ctx, path, report)
}

// Import writes the keys of an export into the tenant, under its own name. It reads the whole file first, and
// writes nothing if that is damaged. It refuses a tenant that has any key, unless into is true: then a key of the
// file replaces the tenant's, and the others stay; so an import that was interrupted can be repeated. Pauses, and limits
// of queues, are added one by one. The tenant is paused until all keys are there; the pauses of the export end, too.
// Tasks that ran at the time of the export count as those of dead hosts: hosts run them again within minutes.
func (o Mover) Import(ctx context.Context, path string, into bool, report func(Moved)) (Moved, error) {
	return o.tenant.restore(ctx, path, into, report)
}

// Erase deletes all keys of the tenant, in blocks. It pauses the tenant first, so that neither producers nor hosts
// make new tasks, and looks again until nothing is left; so it may be interrupted, and repeated. Hosts must have
// left: they would write their leases and the schedules of their manifests again. The error is ErrInUse, with some
// keys, if something goes on writing.
func (o Mover) Erase(ctx context.Context, report func(Moved)) (Moved, error) {
	return o.tenant.erase(ctx, report)
}
