package manage

import (
	"context"
	"errors"
	"slices"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Mover exports, imports and deletes a whole tenant.
type Mover struct {
	tenant *Manager
	store  *store.Store
}

// NewMover returns the Mover of a tenant.
func NewMover(m *Manager) Mover { return Mover{m, m.store} }

// The reasons of a Mover's pauses.
const (
	ReasonExport   = "an export"
	ReasonImport   = "an import"
	ReasonDeletion = "its deletion"
)

// Pause stops the tenant from taking and from accepting tasks, for one of the reasons above. A pause that lasts already
// stays as it is.
func (m Mover) Pause(ctx context.Context, who, reason string) error {
	err := m.pause(ctx, who, reason)
	if reason != ReasonDeletion || !damaged(err) {
		return err
	}
	for i, key := range m.names(pauseKeys) { // a key of the wrong type is in the way: it would be deleted, too
		kind, err := m.store.RDB.Type(ctx, key).Result()
		if err == nil && kind != pauseTypes[i] {
			err = m.store.RDB.Unlink(ctx, key).Err()
		}
		if err != nil {
			return store.Wrap("delete key "+key, err)
		}
	}
	return m.pause(ctx, who, reason)
}

func (m Mover) pause(ctx context.Context, who, reason string) error {
	lasting, err := m.pauses(ctx)
	for _, accepting := range []bool{true, false} {
		if err == nil && !slices.ContainsFunc(lasting, func(p Pause) bool { return p.Accepting == accepting }) {
			err = m.tenant.Pauses().Pause(ctx, Pause{Accepting: accepting, Who: who, Reason: reason})
		}
	}
	return err
}

// HasKeys reports whether the tenant has any key. With toDelete it fails if the user must not delete keys.
func (m Mover) HasKeys(ctx context.Context, toDelete bool) (bool, error) {
	if toDelete {
		if err := m.store.RDB.Unlink(ctx, m.store.Keys.Key("")).Err(); err != nil { // no key has this name
			return false, store.Wrap("delete keys", err)
		}
	}
	has := false
	err := m.eachBlock(ctx, func(keys []string) error {
		if has = len(keys) > 0; has {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return has, err
}

// Resume ends the pauses of a Mover, also of one that was interrupted, and no others.
func (m Mover) Resume(ctx context.Context) error {
	lasting, err := m.pauses(ctx)
	for _, p := range lasting {
		if err == nil && p.ofMover() {
			err = m.tenant.Pauses().Resume(ctx, p)
		}
	}
	return err
}

// pauses lists the pauses of the whole tenant.
func (m Mover) pauses(ctx context.Context) ([]Pause, error) {
	all, err := m.tenant.Pauses().List(ctx)
	return slices.DeleteFunc(all, func(p Pause) bool { return p.scope() != store.TenantScope }), err
}

// ofMover reports whether a Mover began the pause.
func (p Pause) ofMover() bool {
	reasons := []string{ReasonExport, ReasonImport, ReasonDeletion}
	return p.scope() == store.TenantScope && slices.Contains(reasons, p.Reason)
}
