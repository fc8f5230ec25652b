package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// NoteSchedule notes whether a live host's plugin declares the schedule. Without a host it stands still. After most (0: never) it is
// deleted; gone tells so.
func (f *Fleet) NoteSchedule(ctx context.Context, s *Schedule, declared bool, most time.Duration) (gone bool, err error) {
	if declared && s.Absent.IsZero() {
		return false, nil
	}
	what := "absent"
	if declared {
		what = "present"
	}
	answer, err := f.client.schedule(ctx, "", s.ID, s.Owner, what, durationText(most))
	return answer == string(PutChanged), err
}

// NoteSubscription notes whether a live host's plugin declares the subscription, as it was read. After most without a host (0: never)
// it is deleted; gone tells so.
func (f *Fleet) NoteSubscription(ctx context.Context, s Subscription, declared bool, most time.Duration) (gone bool, err error) {
	if declared && s.Absent.IsZero() {
		return false, nil
	}
	now, err := f.client.store.now(ctx)
	switch {
	case err != nil:
		return false, err
	case declared:
		s.Absent = time.Time{}
		err = f.client.writeSubscription(ctx, &s)
	case s.Absent.IsZero():
		s.Absent = now
		err = f.client.writeSubscription(ctx, &s)
	case most > 0 && now.Sub(s.Absent) >= most:
		err = wrap("delete subscription "+s.ID, f.client.replaceSubscription(ctx, s.ID, s.text, "", "", ""))
		gone = err == nil
	}
	if errors.Is(err, errChanged) { // then it is looked at again
		err = nil
	}
	return gone, err
}

// errSame ends a change that would change nothing.
var errSame = errors.New("it is the same")

// Definition is a digest of what a manifest says of a subscription.
func (s *Subscription) Definition() string {
	filter, _ := json.Marshal(s.Filter) // as text, because one may have been read from Redis
	return definition(s.Topic, s.Queue, string(filter))
}

// Definition is a digest of what a manifest says of a schedule.
func (s *Schedule) Definition() string {
	d := s.withDefaults()
	return definition(d.fields()...)
}

func definition(parts ...any) string {
	text, _ := json.Marshal(parts) // of texts
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// DeclareSubscription stores what a plugin's manifest says of its subscription; what people set of it stays. ErrOwned if somebody else
// made one of this ID. missing stores it only if there is none.
func (f *Fleet) DeclareSubscription(ctx context.Context, s Subscription, missing bool) (Put, error) {
	put := PutChanged
	_, err := f.client.ChangeSubscription(ctx, s.ID, func(is *Subscription) error {
		switch {
		case is.Plugin != s.Plugin:
			return owned(is)
		case is.Absent.IsZero() && is.Definition() == s.Definition():
			put = PutSame
			return errSame
		case is.Absent.IsZero() && missing:
			put = PutKept
			return errSame
		case !missing:
			is.Topic, is.Queue, is.Filter = s.Topic, s.Queue, s.Filter
		}
		is.Absent = time.Time{}
		return nil
	})
	switch {
	case errors.Is(err, ErrNoSubscription):
		if _, err = f.client.Subscribe(ctx, s); errors.Is(err, ErrExists) { // another host was faster
			return PutKept, nil
		}
		return PutNew, err
	case errors.Is(err, errSame):
		err = nil
	}
	return put, err
}

func owned(s *Subscription) error {
	by := ScheduleByHand
	if s.Plugin != "" {
		by = OwnedByPlugin(s.Plugin)
	}
	return fmt.Errorf("subscription %s: %w: %s", s.ID, ErrOwned, by)
}
