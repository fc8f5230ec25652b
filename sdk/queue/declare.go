package queue

import (
	"bytes"
	"context"
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
	now, err := f.client.now(ctx)
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
		err = wrap("delete subscription "+s.ID, f.client.replaceSubscription(ctx, s.ID, s.text, "", ""))
		gone = err == nil
	}
	if errors.Is(err, errChanged) { // then it is looked at again
		err = nil
	}
	return gone, err
}

// errSame ends a change that would change nothing.
var errSame = errors.New("it is the same")

// SameDeclaration tells whether another subscription says the same, as far as a manifest says it.
func (s *Subscription) SameDeclaration(other *Subscription) bool {
	is, _ := json.Marshal(s.Filter)
	as, _ := json.Marshal(other.Filter) // texts, because one may have been read from Redis
	return s.Topic == other.Topic && s.Queue == other.Queue && bytes.Equal(is, as)
}

// DeclareSubscription stores what a plugin's manifest says of its subscription; what people set of it stays. ErrOwned if somebody else
// made one of this ID. missing stores it only if there is none.
func (f *Fleet) DeclareSubscription(ctx context.Context, s Subscription, missing bool) (Put, error) {
	put := PutChanged
	_, err := f.client.ChangeSubscription(ctx, s.ID, func(is *Subscription) error {
		switch {
		case is.Plugin != s.Plugin:
			return owned(is)
		case is.Absent.IsZero() && is.SameDeclaration(&s):
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

// UndeclareSubscription deletes a subscription of a plugin: ErrOwned if it is not the plugin's.
func (f *Fleet) UndeclareSubscription(ctx context.Context, id, plugin string) error {
	return f.client.unsubscribe(ctx, id, func(text string) error {
		s, err := parseSubscription(id, text)
		if err == nil && s.Plugin != plugin {
			err = owned(&s)
		}
		return err
	})
}

func owned(s *Subscription) error {
	by := ScheduleByHand
	if s.Plugin != "" {
		by = OwnedByPlugin(s.Plugin)
	}
	return fmt.Errorf("subscription %s: %w: %s", s.ID, ErrOwned, by)
}
