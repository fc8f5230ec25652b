package mover

import (
	"context"
	"errors"
	"slices"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Mover exports, imports and deletes a whole tenant.
type Mover struct {
	client *queue.Client
	store  *store.Store
	pauses manage.Pauses
}

// New returns the Mover of the client's tenant.
func New(client *queue.Client) Mover {
	return Mover{client, client.Store(), manage.New(client).Pauses()}
}

// The reasons of a Mover's pauses.
const (
	ReasonExport   = "an export"
	ReasonImport   = "an import"
	ReasonDeletion = "its deletion"
)

var reasons = []string{ReasonExport, ReasonImport, ReasonDeletion}

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
	lasting, err := m.lasting(ctx)
	for _, accepting := range []bool{true, false} {
		if err == nil && !slices.ContainsFunc(lasting, func(p manage.Pause) bool { return p.Accepting == accepting }) {
			err = m.pauses.Pause(ctx, manage.Pause{Accepting: accepting, Who: who, Reason: reason})
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
	lasting, err := m.lasting(ctx)
	for _, p := range lasting {
		if err == nil && slices.Contains(reasons, p.Reason) {
			err = m.pauses.Resume(ctx, p)
		}
	}
	return err
}

// lasting lists the pauses of the whole tenant.
func (m Mover) lasting(ctx context.Context) ([]manage.Pause, error) {
	all, err := m.pauses.List(ctx)
	return slices.DeleteFunc(all, func(p manage.Pause) bool { return p.Queue != "" || p.Plugin != "" }), err
}
