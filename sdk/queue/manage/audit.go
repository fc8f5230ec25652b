package manage

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// auditEntries is roughly the maximum number of entries in a tenant's audit log.
const auditEntries = 10_000

var auditID = regexp.MustCompile(`^[0-9]{1,19}(-[0-9]{1,19})?$`)

// AuditEntry is an action of a person or program on a tenant.
type AuditEntry struct {
	ID     string // set by Redis; later entries have larger IDs
	Time   time.Time
	Who    string
	Action string
	On     string // the queue, task, listener, plugin or job that was acted on
	From   string // the network address that the action came from
	Status int    // HTTP status of the response
	Detail string
}

// Audit appends an entry to the tenant's audit log.
func (m *Manager) Audit(ctx context.Context, e AuditEntry) error {
	fields := store.AppendFields(nil, "who", store.Head(store.ValidText(e.Who), store.AuditText), "action", e.Action, "on",
		store.Head(store.ValidText(e.On), store.AuditText),
		"from", e.From, "status", strconv.Itoa(e.Status), "detail", store.Head(store.ValidText(e.Detail), store.AuditText))
	err := m.store.RDB.XAdd(ctx, &redis.XAddArgs{
		Stream: m.store.Keys.Audit(), MaxLen: auditEntries, Approx: true,
		Values: fields,
	}).Err()
	return store.Wrap("write audit log "+m.store.Keys.Audit(), err)
}

// AuditLog reads up to limit entries that are older than the entry `before`, newest first; "" begins with the newest.
func (m *Manager) AuditLog(ctx context.Context, before string, limit int64) ([]AuditEntry, error) {
	from := "+"
	if before != "" {
		if !auditID.MatchString(before) {
			return nil, fmt.Errorf("%w: audit entry %q is not an entry's ID: use one such as 1700000000000-0", queue.ErrInvalid,
				before)
		}
		from = "(" + before
	}
	messages, err := m.store.RDB.XRevRangeN(ctx, m.store.Keys.Audit(), from, "-", limit).Result()
	entries := make([]AuditEntry, 0, len(messages))
	for _, message := range messages {
		text := func(field string) string { value, _ := message.Values[field].(string); return value }
		e := AuditEntry{
			ID: message.ID, Who: text("who"), Action: text("action"), On: text("on"), From: text("from"),
			Status: int(store.AsInt(text("status"))), Detail: text("detail"),
		}
		milliseconds, _, _ := strings.Cut(message.ID, "-")
		if ms, err := strconv.ParseInt(milliseconds, 10, 64); err == nil {
			e.Time = time.UnixMilli(ms)
		}
		entries = append(entries, e)
	}
	return entries, store.Wrap("read audit log "+m.store.Keys.Audit(), err)
}
