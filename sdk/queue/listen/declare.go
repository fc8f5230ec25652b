package listen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// NoteSchedule records whether the plugin of any live host declares the schedule. If declared is false, the schedule is
// absent and does not fire. A schedule that has been absent for maxAbsence is deleted (0: never), and NoteSchedule then
// returns true.
func (f *Fleet) NoteSchedule(ctx context.Context, s *queue.Schedule, declared bool,
	maxAbsence time.Duration,
) (deleted bool, err error) {
	if declared && s.Absent.IsZero() {
		return false, nil
	}
	what := "absent"
	if declared {
		what = "present"
	}
	c := f.client.Store()
	answer, err := c.Eval(ctx, store.NewCall("schedule", c.Keys.Ticks(), c.Clock, s.ID, s.Owner, what, "",
		store.DurationText(maxAbsence)))
	return answer == string(queue.PutChanged), store.Wrap(fmt.Sprintf("%s schedule %s", what, s.ID), err)
}

// NoteSubscription records whether the plugin of any live host declares the subscription. s is the subscription as the
// caller read it. If declared is false, the subscription is absent. A subscription that has been absent for maxAbsence
// is deleted (0: never), and NoteSubscription then returns true.
func (f *Fleet) NoteSubscription(ctx context.Context, s queue.Subscription, declared bool,
	maxAbsence time.Duration,
) (deleted bool, err error) {
	if declared && s.Absent.IsZero() {
		return false, nil
	}
	now, err := f.client.Store().Now(ctx)
	if err != nil {
		return false, err
	}
	_, err = f.client.ChangeSubscription(ctx, s.ID, func(is *queue.Subscription) error {
		switch {
		case !is.UpdatedAt.Equal(s.UpdatedAt): // changed since the caller read it: the next call decides
			return errSame
		case declared:
			is.Absent = time.Time{}
		case is.Absent.IsZero():
			is.Absent = now
		case maxAbsence > 0 && now.Sub(is.Absent) >= maxAbsence:
			deleted = true
			return queue.ErrUnsubscribe
		default:
			return errSame
		}
		return nil
	})
	if errors.Is(err, errSame) || errors.Is(err, queue.ErrNoSubscription) {
		err = nil
	}
	return deleted && err == nil, err
}

// errSame ends a ChangeSubscription that would change nothing.
var errSame = errors.New("it is the same")

// DeclareSubscription stores a plugin's subscription as the manifest declares it. In an existing subscription, fields
// other than Topic, Queue and Filter keep the values that people have set. If missing is true, Topic, Queue and Filter
// stay, too. The error is queue.ErrOwned if the subscription with this ID does not belong to the plugin.
func (f *Fleet) DeclareSubscription(ctx context.Context, s queue.Subscription, missing bool) (queue.Put, error) {
	put := queue.PutChanged
	_, err := f.client.ChangeSubscription(ctx, s.ID, func(is *queue.Subscription) error {
		switch {
		case is.Plugin != s.Plugin:
			return owned(is)
		case is.Absent.IsZero() && is.Definition() == s.Definition():
			put = queue.PutSame
			return errSame
		case is.Absent.IsZero() && missing:
			put = queue.PutKept
			return errSame
		case !missing:
			is.Topic, is.Queue, is.Filter = s.Topic, s.Queue, s.Filter
		}
		is.Absent = time.Time{}
		return nil
	})
	switch {
	case errors.Is(err, queue.ErrNoSubscription):
		if _, err = f.client.Subscribe(ctx, s); errors.Is(err, queue.ErrExists) { // another host was faster
			return queue.PutKept, nil
		}
		return queue.PutNew, err
	case errors.Is(err, errSame):
		err = nil
	}
	return put, err
}

func owned(s *queue.Subscription) error {
	by := queue.ScheduleByHand
	if s.Plugin != "" {
		by = queue.OwnedByPlugin(s.Plugin)
	}
	return fmt.Errorf("subscription %s: %w: %s", s.ID, queue.ErrOwned, by)
}
