package manage

import "context"

// Mover exports, imports and deletes a whole tenant.
type Mover struct{ tenant *Manager }

// NewMover returns the Mover of a tenant.
func NewMover(m *Manager) Mover { return Mover{m} }

// Export writes all keys of the tenant to a new file, except what says who lives now: leases, duties, the sample.
// It writes FILE.part first; if that exists, from an export that was interrupted, it goes on there as long as the
// server is the same. Keys that change meanwhile are as they were at some moment of the export, each at its own:
// it is no snapshot, unless the tenant is paused and nothing runs. report is called after each block.
func (o Mover) Export(ctx context.Context, path string, report func(Moved)) (Moved, error) {
	return o.tenant.export(ctx, path, report)
}

// Import writes the keys of an export into the tenant, under its own name. It reads the whole file first, and
// writes nothing if that is damaged. It refuses a tenant that has any key, unless into is true: then a key of the
// file replaces the tenant's, and the others stay; so an import that was interrupted can be repeated. The tenant
// is paused until all keys are there. Tasks that ran at the time of the export count as those of dead hosts: hosts
// run them again within minutes.
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
