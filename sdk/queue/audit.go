package queue

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// auditEntries is about how many entries the audit log of a tenant keeps, and auditText the most bytes of one text in it.
const (
	auditEntries = 10_000
	auditText    = 1 << 10
)

var auditID = regexp.MustCompile(`^[0-9]{1,19}(-[0-9]{1,19})?$`)

// AuditEntry is an action of a person or program on a tenant.
type AuditEntry struct {
	ID     string // set by Redis; in the order of time
	Time   time.Time
	Who    string
	Action string
	On     string // a queue, task, listener, plugin or job
	From   string // an address
	Status int    // of the answer, as in HTTP
	Detail string
}

// Audit appends to the tenant's audit log.
func (c *Client) Audit(ctx context.Context, e AuditEntry) error {
	fields := appendFields(nil, "who", head(validText(e.Who), auditText), "action", e.Action, "on", head(validText(e.On), auditText),
		"from", e.From, "status", strconv.Itoa(e.Status), "detail", head(validText(e.Detail), auditText))
	err := c.store.rdb.XAdd(ctx, &redis.XAddArgs{Stream: c.store.keys.audit(), MaxLen: auditEntries, Approx: true, Values: fields}).Err()
	return wrap("write audit log "+c.store.keys.audit(), err)
}

// AuditLog reads up to limit entries before an ID, newest first; "" begins with the newest.
func (c *Client) AuditLog(ctx context.Context, before string, limit int64) ([]AuditEntry, error) {
	from := "+"
	if before != "" {
		if !auditID.MatchString(before) {
			return nil, fmt.Errorf("%w: audit entry %q: use the ID of one, such as 1700000000000-0", ErrInvalid, before)
		}
		from = "(" + before
	}
	messages, err := c.store.rdb.XRevRangeN(ctx, c.store.keys.audit(), from, "-", limit).Result()
	entries := make([]AuditEntry, 0, len(messages))
	for _, message := range messages {
		text := func(field string) string { value, _ := message.Values[field].(string); return value }
		e := AuditEntry{
			ID: message.ID, Who: text("who"), Action: text("action"), On: text("on"), From: text("from"),
			Status: int(asInt(text("status"))), Detail: text("detail"),
		}
		milliseconds, _, _ := strings.Cut(message.ID, "-")
		if ms, err := strconv.ParseInt(milliseconds, 10, 64); err == nil {
			e.Time = time.UnixMilli(ms)
		}
		entries = append(entries, e)
	}
	return entries, wrap("read audit log "+c.store.keys.audit(), err)
}
