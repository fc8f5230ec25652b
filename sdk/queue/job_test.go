package queue_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/manage"
)

func TestJobs(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if _, err := manage.New(w.Client).Job(w.ctx, "none"); !errors.Is(err, manage.ErrNoJob) {
			t.Errorf("%v, want ErrNoJob", err)
		}
		job := must[*manage.Job](t)(manage.New(w.Client).NewJob(w.ctx, "retry", "{}", "ada"))
		if job.State != manage.JobCounting || job.Claimed || job.By != "ada" || job.Filter != "{}" || job.Created.IsZero() {
			t.Errorf("new: %+v", job)
		}
		work := must[*manage.JobWork](t)(manage.New(w.Client).WorkOn(w.ctx, job.ID))
		if other := must[*manage.JobWork](t)(manage.New(w.Client).WorkOn(w.ctx, job.ID)); other != nil {
			t.Error("two work on a job")
		}
		for _, err := range []error{
			work.Add(w.ctx, nil), work.Add(w.ctx, []manage.JobItem{{ID: "old"}}), work.Forget(w.ctx), work.Add(w.ctx, []manage.JobItem{{ID: "a"}, {ID: "b"}}), work.Add(w.ctx, []manage.JobItem{{ID: "c"}}),
			work.Become(w.ctx, manage.JobCounted, true, ""), manage.New(w.Client).JobStart(w.ctx, job.ID), work.Become(w.ctx, manage.JobRunning, false, ""),
			work.End(w.ctx, 0, []manage.JobItem{{End: manage.JobItemDone}}), work.End(w.ctx, 0, []manage.JobItem{{End: manage.JobItemDone, Text: "repeated, because the answer was lost"}}), work.End(w.ctx, 1, []manage.JobItem{{End: manage.JobItemFailed, Text: "two\nlines \xff"}}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		got := must[*manage.Job](t)(manage.New(w.Client).Job(w.ctx, job.ID))
		if got.State != manage.JobRunning || !got.Claimed || !got.Start || got.Stop || !got.More || got.Items != 3 || got.Ended != 2 ||
			got.Ends[manage.JobItemDone] != 1 || got.Ends[manage.JobItemFailed] != 1 {
			t.Errorf("half done: %+v", got)
		}
		items := must[[]manage.JobItem](t)(manage.New(w.Client).JobItems(w.ctx, job.ID, 1, 10))
		if !slices.Equal(items, []manage.JobItem{{ID: "b", End: manage.JobItemFailed, Text: "two\nlines \ufffd"}, {ID: "c"}}) {
			t.Errorf("%q", items)
		}
		if stop := must[bool](t)(work.Stopped(w.ctx)); stop {
			t.Error("nobody stopped it")
		}
		if err := manage.New(w.Client).JobStop(w.ctx, job.ID); err != nil || !must[bool](t)(work.Stopped(w.ctx)) {
			t.Errorf("it was stopped: %v", err)
		}
		if err := manage.New(w.Client).JobStop(w.ctx, "gone"); err != nil || w.rdb.TTL(w.ctx, w.Store().Keys.Job("gone")).Val() <= 0 {
			t.Errorf("a job that was just forgotten stays for good: %v", err)
		}
		if err := errors.Join(work.Become(w.ctx, manage.JobStopped, false, "why"), work.Leave(w.ctx)); err != nil {
			t.Fatal(err)
		}
		if got := must[*manage.Job](t)(manage.New(w.Client).Job(w.ctx, job.ID)); got.Claimed || got.Error != "why" || !got.Stop {
			t.Errorf("stopped: %+v", got)
		}
		if err := manage.New(w.Client).JobStart(w.ctx, job.ID); err != nil {
			t.Fatal(err)
		}
		if got := must[*manage.Job](t)(manage.New(w.Client).Job(w.ctx, job.ID)); got.Error != "" || got.Stop {
			t.Errorf("started again: %+v", got)
		}
		second := must[*manage.Job](t)(manage.New(w.Client).NewJob(w.ctx, "delete", "{}", "ada"))
		if jobs := must[[]*manage.Job](t)(manage.New(w.Client).Jobs(w.ctx)); len(jobs) != 2 || jobs[0].ID != second.ID {
			t.Errorf("%+v", jobs)
		}
		for _, key := range []string{w.Store().Keys.Job(job.ID), w.Store().Keys.JobItems(job.ID), w.Store().Keys.JobEnds(job.ID), w.Store().Keys.Jobs()} {
			if life := w.rdb.TTL(w.ctx, key).Val(); life <= 0 || life > manage.JobLife {
				t.Errorf("%s lives for %s", key, life)
			}
		}
	})
}

// A change is over before another process may work on the job.
func TestChangeEndsWithinTheClaim(t *testing.T) {
	w := setup(t)
	job := must[*manage.Job](t)(manage.New(w.Client).NewJob(w.ctx, "retry", "{}", "ada"))
	work := must[*manage.JobWork](t)(manage.New(w.Client).WorkOn(w.ctx, job.ID))
	ctx, done := work.Within(w.ctx)
	defer done()
	deadline, ok := ctx.Deadline()
	left := w.rdb.PTTL(w.ctx, w.Store().Keys.Duty(manage.JobDuty(job.ID))).Val()
	if !ok || left <= 0 || time.Until(deadline) >= left {
		t.Errorf("a change may take %s of the %s that the claim lasts", time.Until(deadline), left)
	}
	work.Claimed = time.Now().Add(-manage.JobClaim) // as after a long halt of the process
	if ctx, done := work.Within(w.ctx); ctx.Err() == nil {
		t.Error("a change begins after the end of the claim")
	} else {
		done()
	}
}

// Who lost the claim, because it did not renew in time, learns it and changes nothing; the other keeps it.
func TestLostClaim(t *testing.T) {
	w := setup(t)
	job := must[*manage.Job](t)(manage.New(w.Client).NewJob(w.ctx, "retry", "{}", "ada"))
	late := must[*manage.JobWork](t)(manage.New(w.Client).WorkOn(w.ctx, job.ID))
	if err := late.Add(w.ctx, []manage.JobItem{{ID: "a"}, {ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	w.rdb.Del(w.ctx, w.Store().Keys.Duty(manage.JobDuty(job.ID))) // as if it had expired
	next := must[*manage.JobWork](t)(manage.New(w.Client).WorkOn(w.ctx, job.ID))
	if err := next.End(w.ctx, 0, []manage.JobItem{{End: manage.JobItemDone}}); err != nil {
		t.Fatal(err)
	}
	late.Claimed, next.Claimed = time.Time{}, time.Time{}
	for what, err := range map[string]error{
		"keep": late.Keep(w.ctx), "add": late.Add(w.ctx, []manage.JobItem{{ID: "c"}}), "end": late.End(w.ctx, 1, []manage.JobItem{{End: manage.JobItemFailed}}),
		"become": late.Become(w.ctx, manage.JobDone, false, ""), "forget": late.Forget(w.ctx),
	} {
		if !errors.Is(err, manage.ErrClaimLost) {
			t.Errorf("%s with a lost claim: %v, want ErrClaimLost", what, err)
		}
	}
	if got := must[*manage.Job](t)(manage.New(w.Client).Job(w.ctx, job.ID)); got.State != manage.JobCounting || got.Items != 2 || got.Ended != 1 {
		t.Errorf("who lost the claim changed the job: %+v", got)
	}
	if err := late.Leave(w.ctx); err != nil {
		t.Fatal(err)
	}
	if err := next.Keep(w.ctx); err != nil {
		t.Errorf("the claim is lost, because another one was given up: %v", err)
	}
}

// The oldest of too many jobs is deleted with all that it has; who works on it stops.
func TestTooManyJobs(t *testing.T) {
	w := setup(t)
	oldest := must[*manage.Job](t)(manage.New(w.Client).NewJob(w.ctx, "retry", "{}", "ada"))
	work := must[*manage.JobWork](t)(manage.New(w.Client).WorkOn(w.ctx, oldest.ID))
	if err := work.Add(w.ctx, []manage.JobItem{{ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	for range manage.JobCount {
		must[*manage.Job](t)(manage.New(w.Client).NewJob(w.ctx, "retry", "{}", "ada"))
	}
	if jobs := must[[]*manage.Job](t)(manage.New(w.Client).Jobs(w.ctx)); len(jobs) != manage.JobCount {
		t.Errorf("%d jobs", len(jobs))
	}
	if n := w.rdb.Exists(w.ctx, w.Store().Keys.Job(oldest.ID), w.Store().Keys.JobItems(oldest.ID)).Val(); n != 0 {
		t.Errorf("%d keys of the oldest are left", n)
	}
	if err := work.Add(w.ctx, []manage.JobItem{{ID: "b"}}); !errors.Is(err, manage.ErrClaimLost) {
		t.Errorf("%v, want ErrClaimLost", err)
	}
}
