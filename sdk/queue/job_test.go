package queue

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestJobs(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if _, err := w.Job(w.ctx, "none"); !errors.Is(err, ErrNoJob) {
			t.Errorf("%v, want ErrNoJob", err)
		}
		job := must[*Job](t)(w.NewJob(w.ctx, "retry", "{}", "ada"))
		if job.State != JobCounting || job.Claimed || job.By != "ada" || job.Filter != "{}" || job.Created.IsZero() {
			t.Errorf("new: %+v", job)
		}
		work := must[*JobWork](t)(w.WorkOn(w.ctx, job.ID))
		if other := must[*JobWork](t)(w.WorkOn(w.ctx, job.ID)); other != nil {
			t.Error("two work on a job")
		}
		for _, err := range []error{
			work.Add(w.ctx, nil), work.Add(w.ctx, []JobItem{{ID: "old"}}), work.Forget(w.ctx), work.Add(w.ctx, []JobItem{{ID: "a"}, {ID: "b"}}), work.Add(w.ctx, []JobItem{{ID: "c"}}),
			work.Become(w.ctx, JobCounted, true, ""), w.JobStart(w.ctx, job.ID), work.Become(w.ctx, JobRunning, false, ""),
			work.End(w.ctx, 0, []JobItem{{End: JobItemDone}}), work.End(w.ctx, 0, []JobItem{{End: JobItemDone, Text: "repeated, because the answer was lost"}}), work.End(w.ctx, 1, []JobItem{{End: JobItemFailed, Text: "two\nlines \xff"}}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		got := must[*Job](t)(w.Job(w.ctx, job.ID))
		if got.State != JobRunning || !got.Claimed || !got.Start || got.Stop || !got.More || got.Items != 3 || got.Ended != 2 ||
			got.Ends[JobItemDone] != 1 || got.Ends[JobItemFailed] != 1 {
			t.Errorf("half done: %+v", got)
		}
		items := must[[]JobItem](t)(w.JobItems(w.ctx, job.ID, 1, 10))
		if !slices.Equal(items, []JobItem{{ID: "b", End: JobItemFailed, Text: "two\nlines \ufffd"}, {ID: "c"}}) {
			t.Errorf("%q", items)
		}
		if stop := must[bool](t)(work.Stopped(w.ctx)); stop {
			t.Error("nobody stopped it")
		}
		if err := w.JobStop(w.ctx, job.ID); err != nil || !must[bool](t)(work.Stopped(w.ctx)) {
			t.Errorf("it was stopped: %v", err)
		}
		if err := w.JobStop(w.ctx, "gone"); err != nil || w.rdb.TTL(w.ctx, w.store.keys.job("gone")).Val() <= 0 {
			t.Errorf("a job that was just forgotten stays for good: %v", err)
		}
		if err := errors.Join(work.Become(w.ctx, JobStopped, false, "why"), work.Leave(w.ctx)); err != nil {
			t.Fatal(err)
		}
		if got := must[*Job](t)(w.Job(w.ctx, job.ID)); got.Claimed || got.Error != "why" || !got.Stop {
			t.Errorf("stopped: %+v", got)
		}
		if err := w.JobStart(w.ctx, job.ID); err != nil {
			t.Fatal(err)
		}
		if got := must[*Job](t)(w.Job(w.ctx, job.ID)); got.Error != "" || got.Stop {
			t.Errorf("started again: %+v", got)
		}
		second := must[*Job](t)(w.NewJob(w.ctx, "delete", "{}", "ada"))
		if jobs := must[[]*Job](t)(w.Jobs(w.ctx)); len(jobs) != 2 || jobs[0].ID != second.ID {
			t.Errorf("%+v", jobs)
		}
		for _, key := range []string{w.store.keys.job(job.ID), w.store.keys.jobItems(job.ID), w.store.keys.jobEnds(job.ID), w.store.keys.jobs()} {
			if life := w.rdb.TTL(w.ctx, key).Val(); life <= 0 || life > jobLife {
				t.Errorf("%s lives for %s", key, life)
			}
		}
	})
}

// A change is over before another process may work on the job.
func TestChangeEndsWithinTheClaim(t *testing.T) {
	w := setup(t)
	job := must[*Job](t)(w.NewJob(w.ctx, "retry", "{}", "ada"))
	work := must[*JobWork](t)(w.WorkOn(w.ctx, job.ID))
	ctx, done := work.Within(w.ctx)
	defer done()
	deadline, ok := ctx.Deadline()
	left := w.rdb.PTTL(w.ctx, w.store.keys.duty(jobDuty(job.ID))).Val()
	if !ok || left <= 0 || time.Until(deadline) >= left {
		t.Errorf("a change may take %s of the %s that the claim lasts", time.Until(deadline), left)
	}
	work.claimed = time.Now().Add(-JobClaim) // as after a long halt of the process
	if ctx, done := work.Within(w.ctx); ctx.Err() == nil {
		t.Error("a change begins after the end of the claim")
	} else {
		done()
	}
}

// Who lost the claim, because it did not renew in time, learns it and changes nothing; the other keeps it.
func TestLostClaim(t *testing.T) {
	w := setup(t)
	job := must[*Job](t)(w.NewJob(w.ctx, "retry", "{}", "ada"))
	late := must[*JobWork](t)(w.WorkOn(w.ctx, job.ID))
	if err := late.Add(w.ctx, []JobItem{{ID: "a"}, {ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	w.rdb.Del(w.ctx, w.store.keys.duty(jobDuty(job.ID))) // as if it had expired
	next := must[*JobWork](t)(w.WorkOn(w.ctx, job.ID))
	if err := next.End(w.ctx, 0, []JobItem{{End: JobItemDone}}); err != nil {
		t.Fatal(err)
	}
	late.claimed, next.claimed = time.Time{}, time.Time{}
	for what, err := range map[string]error{
		"keep": late.Keep(w.ctx), "add": late.Add(w.ctx, []JobItem{{ID: "c"}}), "end": late.End(w.ctx, 1, []JobItem{{End: JobItemFailed}}),
		"become": late.Become(w.ctx, JobDone, false, ""), "forget": late.Forget(w.ctx),
	} {
		if !errors.Is(err, ErrClaimLost) {
			t.Errorf("%s with a lost claim: %v, want ErrClaimLost", what, err)
		}
	}
	if got := must[*Job](t)(w.Job(w.ctx, job.ID)); got.State != JobCounting || got.Items != 2 || got.Ended != 1 {
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
	oldest := must[*Job](t)(w.NewJob(w.ctx, "retry", "{}", "ada"))
	work := must[*JobWork](t)(w.WorkOn(w.ctx, oldest.ID))
	if err := work.Add(w.ctx, []JobItem{{ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	for range jobCount {
		must[*Job](t)(w.NewJob(w.ctx, "retry", "{}", "ada"))
	}
	if jobs := must[[]*Job](t)(w.Jobs(w.ctx)); len(jobs) != jobCount {
		t.Errorf("%d jobs", len(jobs))
	}
	if n := w.rdb.Exists(w.ctx, w.store.keys.job(oldest.ID), w.store.keys.jobItems(oldest.ID)).Val(); n != 0 {
		t.Errorf("%d keys of the oldest are left", n)
	}
	if err := work.Add(w.ctx, []JobItem{{ID: "b"}}); !errors.Is(err, ErrClaimLost) {
		t.Errorf("%v, want ErrClaimLost", err)
	}
}
