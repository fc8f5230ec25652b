package queue_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func TestJobs(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if _, err := manage.NewJobs(w.Client).Get(w.ctx, "none"); !errors.Is(err, manage.ErrNoJob) {
			t.Errorf("%v, want ErrNoJob", err)
		}
		job := must[*manage.Job](t)(manage.NewJobs(w.Client).New(w.ctx, "retry", "{}", "ada"))
		if job.State != manage.JobCounting || job.Claimed || job.By != "ada" || job.Filter != "{}" || job.Created.IsZero() {
			t.Errorf("new: %+v", job)
		}
		work := must[*manage.JobWork](t)(manage.NewJobs(w.Client).WorkOn(w.ctx, job.ID))
		if other := must[*manage.JobWork](t)(manage.NewJobs(w.Client).WorkOn(w.ctx, job.ID)); other != nil {
			t.Error("two work on a job")
		}
		for _, err := range []error{
			work.Add(w.ctx, nil), work.Add(w.ctx, []manage.JobItem{{ID: "old"}}), work.Forget(w.ctx), work.Add(w.ctx, []manage.JobItem{{ID: "a"}, {ID: "b"}}), work.Add(w.ctx, []manage.JobItem{{ID: "c"}}),
			work.Become(w.ctx, manage.JobCounted, true, ""), manage.NewJobs(w.Client).Start(w.ctx, job.ID), work.Become(w.ctx, manage.JobRunning, false, ""),
			work.End(w.ctx, 0, []manage.JobItem{{End: manage.JobEndDone}}), work.End(w.ctx, 0, []manage.JobItem{{End: manage.JobEndDone, Text: "repeated, because the answer was lost"}}), work.End(w.ctx, 1, []manage.JobItem{{End: manage.JobEndFailed, Text: "two\nlines \xff"}}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		got := must[*manage.Job](t)(manage.NewJobs(w.Client).Get(w.ctx, job.ID))
		if got.State != manage.JobRunning || !got.Claimed || !got.Start || got.Stop || !got.More || got.Items != 3 || got.Ended != 2 ||
			got.Ends[manage.JobEndDone] != 1 || got.Ends[manage.JobEndFailed] != 1 {
			t.Errorf("half done: %+v", got)
		}
		items := must[[]manage.JobItem](t)(manage.NewJobs(w.Client).Items(w.ctx, job.ID, 1, 10))
		if !slices.Equal(items, []manage.JobItem{{ID: "b", End: manage.JobEndFailed, Text: "two\nlines \ufffd"}, {ID: "c"}}) {
			t.Errorf("%q", items)
		}
		if stop := must[bool](t)(work.Stopped(w.ctx)); stop {
			t.Error("nobody stopped it")
		}
		if err := manage.NewJobs(w.Client).Stop(w.ctx, job.ID); err != nil || !must[bool](t)(work.Stopped(w.ctx)) {
			t.Errorf("it was stopped: %v", err)
		}
		if err := manage.NewJobs(w.Client).Stop(w.ctx, "gone"); err != nil || w.rdb.TTL(w.ctx, w.Store().Keys.Job("gone")).Val() <= 0 {
			t.Errorf("a job that was just forgotten stays for good: %v", err)
		}
		if err := errors.Join(work.Become(w.ctx, manage.JobStopped, false, "why"), work.Leave(w.ctx)); err != nil {
			t.Fatal(err)
		}
		if got := must[*manage.Job](t)(manage.NewJobs(w.Client).Get(w.ctx, job.ID)); got.Claimed || got.Error != "why" || !got.Stop {
			t.Errorf("stopped: %+v", got)
		}
		if err := manage.NewJobs(w.Client).Start(w.ctx, job.ID); err != nil {
			t.Fatal(err)
		}
		if got := must[*manage.Job](t)(manage.NewJobs(w.Client).Get(w.ctx, job.ID)); got.Error != "" || got.Stop {
			t.Errorf("started again: %+v", got)
		}
		second := must[*manage.Job](t)(manage.NewJobs(w.Client).New(w.ctx, "delete", "{}", "ada"))
		if jobs := must[[]*manage.Job](t)(manage.NewJobs(w.Client).List(w.ctx)); len(jobs) != 2 || jobs[0].ID != second.ID {
			t.Errorf("%+v", jobs)
		}
		for _, key := range []string{w.Store().Keys.Job(job.ID), w.Store().Keys.JobItems(job.ID), w.Store().Keys.JobEnds(job.ID), w.Store().Keys.Jobs()} {
			if life := w.rdb.TTL(w.ctx, key).Val(); life <= 0 || life > store.JobLife {
				t.Errorf("%s lives for %s", key, life)
			}
		}
	})
}

// The oldest of too many jobs is deleted with all that it has; who works on it stops.
func TestTooManyJobs(t *testing.T) {
	w := setup(t)
	oldest := must[*manage.Job](t)(manage.NewJobs(w.Client).New(w.ctx, "retry", "{}", "ada"))
	work := must[*manage.JobWork](t)(manage.NewJobs(w.Client).WorkOn(w.ctx, oldest.ID))
	if err := work.Add(w.ctx, []manage.JobItem{{ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	for range store.JobCount {
		must[*manage.Job](t)(manage.NewJobs(w.Client).New(w.ctx, "retry", "{}", "ada"))
	}
	if jobs := must[[]*manage.Job](t)(manage.NewJobs(w.Client).List(w.ctx)); len(jobs) != store.JobCount {
		t.Errorf("%d jobs", len(jobs))
	}
	if n := w.rdb.Exists(w.ctx, w.Store().Keys.Job(oldest.ID), w.Store().Keys.JobItems(oldest.ID)).Val(); n != 0 {
		t.Errorf("%d keys of the oldest are left", n)
	}
	if err := work.Add(w.ctx, []manage.JobItem{{ID: "b"}}); !errors.Is(err, manage.ErrClaimLost) {
		t.Errorf("%v, want ErrClaimLost", err)
	}
}
