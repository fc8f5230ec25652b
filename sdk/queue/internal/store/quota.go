package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Package queue documents ErrQueueFull, and package manage ErrQuota and QuotaError.
var (
	ErrQueueFull = errors.New("queue is full")
	ErrQuota     = fmt.Errorf("%w: the tenant has used up a quota", ErrQueueFull)
)

// QuotaError says which quota of the tenant refuses something new.
type QuotaError struct {
	Tenant string
	Name   string // of the quota, such as tasks_waiting
	Limit  string // the quota's value
	Used   int64  // how much is used; for a rate, how many tasks the call would enqueue
	More   int64  // how much more the call would use
	// RetryAfter is when there may be room; 0 if only somebody's action makes room.
	RetryAfter time.Duration
}

// Error names the quota and its value.
func (e *QuotaError) Error() string {
	if strings.HasSuffix(e.Name, "_rate") {
		return fmt.Sprintf("the quota %s of tenant %s is %s, and %d more are too many before %s have passed", e.Name, e.Tenant,
			e.Limit, e.Used, e.RetryAfter.Round(time.Millisecond))
	}
	text := fmt.Sprintf("the quota %s of tenant %s is %s, and %d are used", e.Name, e.Tenant, e.Limit, e.Used)
	if e.More > 1 {
		text += fmt.Sprintf(": %d more are too many", e.More)
	}
	return text
}

// Unwrap makes errors.Is find ErrQuota and ErrQueueFull.
func (e *QuotaError) Unwrap() error { return ErrQuota }

// ParseLimit parses a queue's field of NS_limits: how many tasks may wait, and whether the oldest is dropped if more
// come. The limit is 0 if there is none.
func ParseLimit(text string) (limit int64, dropOldest bool) {
	number, drop, _ := strings.Cut(text, " ")
	return AsInt(number), drop == "drop"
}

// Quotas reads NS_quotas.
func (s *Store) Quotas(ctx context.Context) (map[string]string, error) {
	all, err := s.RDB.HGetAll(ctx, s.Keys.Quotas()).Result()
	return all, Wrap("read quotas in "+s.Keys.Quotas(), err)
}

// Over returns a QuotaError if err is the error reply QUOTA of a script, else nil.
func (s *Store) Over(err error) error {
	text, _ := Answered(err)
	return s.OverText(text)
}

// OverText is Over for the text of the reply.
func (s *Store) OverText(text string) error {
	words := strings.SplitN(text, " ", 6)
	if len(words) != 6 || words[0] != "QUOTA" {
		return nil
	}
	return &QuotaError{
		Tenant: s.Keys.Tenant, Name: words[1], Limit: words[5], Used: AsInt(words[2]), More: AsInt(words[3]),
		RetryAfter: SecondsDuration(words[4]),
	}
}
