package manage

import (
	"errors"
	"testing"
	"time"
)

// claim makes a job and claims it.
func claim(t *testing.T) (*Jobs, *Job, *JobWork) {
	t.Helper()
	jobs := NewJobs(connect(t))
	job, err := jobs.New(t.Context(), "retry", "{}", "ada")
	if err != nil {
		t.Fatal(err)
	}
	work, err := jobs.WorkOn(t.Context(), job.ID)
	if err != nil || work == nil {
		t.Fatal(work, err)
	}
	return jobs, job, work
}

// A change is over before another process may work on the job.
func TestChangeEndsWithinTheClaim(t *testing.T) {
	t.Parallel()
	jobs, job, work := claim(t)
	ctx, done := work.Within(t.Context())
	defer done()
	deadline, ok := ctx.Deadline()
	left := jobs.store.RDB.PTTL(ctx, jobs.store.Keys.Duty(jobDuty(job.ID))).Val()
	if !ok || left <= 0 || time.Until(deadline) >= left {
		t.Errorf("a change may take %s of the %s that the claim lasts", time.Until(deadline), left)
	}
	work.claimed = time.Now().Add(-JobClaim) // as after a long halt of the process
	if ctx, done := work.Within(t.Context()); ctx.Err() == nil {
		t.Error("a change begins after the end of the claim")
	} else {
		done()
	}
}

// Who lost the claim, because it did not renew in time, learns it and changes nothing; the other keeps it.
func TestLostClaim(t *testing.T) {
	t.Parallel()
	jobs, job, late := claim(t)
	ctx := t.Context()
	if err := late.Add(ctx, []JobItem{{ID: "a"}, {ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	jobs.store.RDB.Del(ctx, jobs.store.Keys.Duty(jobDuty(job.ID))) // as if it had expired
	next, err := jobs.WorkOn(ctx, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.End(ctx, 0, []JobItem{{End: JobEndDone}}); err != nil {
		t.Fatal(err)
	}
	late.claimed, next.claimed = time.Time{}, time.Time{}
	for what, err := range map[string]error{
		"keep": late.Keep(ctx), "add": late.Add(ctx, []JobItem{{ID: "c"}}), "end": late.End(ctx, 1, []JobItem{{End: JobEndFailed}}),
		"become": late.Become(ctx, JobDone, false, ""), "forget": late.Forget(ctx),
	} {
		if !errors.Is(err, ErrClaimLost) {
			t.Errorf("%s with a lost claim: %v, want ErrClaimLost", what, err)
		}
	}
	if got, err := jobs.Get(ctx, job.ID); err != nil || got.State != JobCounting || got.Items != 2 || got.Ended != 1 {
		t.Errorf("who lost the claim changed the job: %+v, %v", got, err)
	}
	if err := late.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	if err := next.Keep(ctx); err != nil {
		t.Errorf("the claim is lost, because another one was given up: %v", err)
	}
}
