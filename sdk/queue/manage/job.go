package manage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/redis/go-redis/v9"
)

const (
	// MaxJobItems is the most tasks of one job.
	MaxJobItems = 100_000
	// JobClaim is how long a process that died counts as working on a job.
	JobClaim = 15 * time.Second

	// jobText is the most bytes of one text of a job.
	jobText = 400
)

// ErrNoJob is the error of a job that does not exist, or not any more.
var ErrNoJob = errors.New("no such job")

// JobState is where a job stands.
type JobState string

// The life of a job: counting → counted → running → done, or stopped. It continues from stopped, or when its process died.
const (
	JobCounting JobState = "counting"
	JobCounted  JobState = "counted"
	JobRunning  JobState = "running"
	JobStopped  JobState = "stopped"
	JobDone     JobState = "done"
)

// JobEnd is what became of one task of a job.
type JobEnd string

// The ends of a task: done, not any more as the job found it, refused for another reason, gone, or an error.
const (
	JobEndDone    JobEnd = "done"
	JobEndChanged JobEnd = "changed"
	JobEndRefused JobEnd = "refused"
	JobEndGone    JobEnd = "gone"
	JobEndFailed  JobEnd = "failed"
)

// Job is an action on many tasks. It is all in Redis; any process can work on it, one at a time.
type Job struct {
	ID      string
	Action  string
	Filter  string // as its maker wrote it
	By      string
	State   JobState
	Claimed bool   // a process works on it
	Start   bool   // it is to run when its tasks are counted
	Stop    bool   // it is to stop
	More    bool   // more tasks matched than a job may have
	Error   string // why it stopped by itself
	Created time.Time
	Items   int64            // tasks
	Ended   int64            // those of them that have their end, the first ones
	Ends    map[JobEnd]int64 // how many ended how
}

// JobItem is one task of a job; End is "" while it has none.
type JobItem struct {
	ID      string
	Created time.Time // of the task that was counted; zero in a job of an older version
	End     JobEnd
	Text    string // why
}

// Of tells whether this task is the one that the job counted: another one may have its ID by now.
func (i *JobItem) Of(task *queue.Task) bool {
	return task.ID == i.ID && (i.Created.IsZero() || i.Created.Equal(task.Created))
}

// Jobs are a tenant's changes of many tasks, which go on when the process that works on one dies. It is safe for concurrent use.
type Jobs struct {
	client *queue.Client
	store  *store.Store
}

// NewJobs are the jobs of the client's tenant.
func NewJobs(client *queue.Client) *Jobs { return &Jobs{client, client.Store()} }

// New makes a job in the state counting.
func (j *Jobs) New(ctx context.Context, action, filter, by string) (*Job, error) {
	now, err := j.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	id := queue.NewID()
	_, err = j.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, j.store.Keys.Job(id), "action", action, "filter", filter, "by", by, "state", string(JobCounting), "created", store.Seconds(now))
		p.LPush(ctx, j.store.Keys.Jobs(), id)
		j.renewExpiry(ctx, p, id)
		return nil
	})
	if err == nil {
		err = j.deleteOldest(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("make job: %w", err)
	}
	return j.Get(ctx, id)
}

// deleteOldest deletes the oldest jobs that are too many. A process that works on one stops.
func (j *Jobs) deleteOldest(ctx context.Context) error {
	old, err := j.store.RDB.LRange(ctx, j.store.Keys.Jobs(), store.JobCount, -1).Result()
	if err != nil || len(old) == 0 {
		return err
	}
	_, err = j.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range old {
			p.Del(ctx, j.store.Keys.Job(id), j.store.Keys.JobItems(id), j.store.Keys.JobEnds(id))
			p.LRem(ctx, j.store.Keys.Jobs(), 0, id)
		}
		return nil
	})
	return err
}

// renewExpiry begins the life of a job anew.
func (j *Jobs) renewExpiry(ctx context.Context, p redis.Pipeliner, id string) {
	for _, key := range []string{j.store.Keys.Job(id), j.store.Keys.JobItems(id), j.store.Keys.JobEnds(id), j.store.Keys.Jobs()} {
		p.Expire(ctx, key, store.JobLife)
	}
}

// Get reads a job: ErrNoJob if there is none.
func (j *Jobs) Get(ctx context.Context, id string) (*Job, error) {
	jobs, err := j.readJobs(ctx, []string{id})
	if err == nil && len(jobs) == 0 {
		err = fmt.Errorf("job %s: %w", id, ErrNoJob)
	}
	if err != nil {
		return nil, err
	}
	return jobs[0], nil
}

// List lists the tenant's jobs, newest first.
func (j *Jobs) List(ctx context.Context) ([]*Job, error) {
	ids, err := j.store.RDB.LRange(ctx, j.store.Keys.Jobs(), 0, store.JobCount-1).Result()
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return j.readJobs(ctx, ids)
}

func (j *Jobs) readJobs(ctx context.Context, ids []string) ([]*Job, error) {
	type read struct {
		hash  *redis.MapStringStringCmd
		items *redis.IntCmd
		ends  *redis.IntCmd
		claim *redis.IntCmd
	}
	cmds, err := store.Pipelined(ctx, j.store, ids, func(p redis.Pipeliner, id string) read {
		return read{p.HGetAll(ctx, j.store.Keys.Job(id)), p.LLen(ctx, j.store.Keys.JobItems(id)), p.LLen(ctx, j.store.Keys.JobEnds(id)), p.Exists(ctx, j.store.Keys.Duty(jobDuty(id)))}
	})
	var jobs []*Job
	for i, cmd := range cmds {
		hash := cmd.hash.Val()
		if len(hash) == 0 {
			continue
		}
		j := &Job{
			ID: ids[i], Action: hash["action"], Filter: hash["filter"], By: hash["by"], State: JobState(hash["state"]),
			Claimed: cmd.claim.Val() > 0, Start: hash["start"] != "", Stop: hash["stop"] != "", More: hash["more"] != "", Error: hash["error"],
			Created: store.ParseSeconds(hash["created"]), Items: cmd.items.Val(), Ended: cmd.ends.Val(), Ends: make(map[JobEnd]int64),
		}
		for _, end := range []JobEnd{JobEndDone, JobEndChanged, JobEndRefused, JobEndGone, JobEndFailed} {
			if n := store.AsInt(hash[string(end)]); n > 0 {
				j.Ends[end] = n
			}
		}
		jobs = append(jobs, j)
	}
	return jobs, store.Wrap("read jobs", err)
}

// Items reads a page of a job's tasks, in the order in which it takes them.
func (j *Jobs) Items(ctx context.Context, id string, offset, limit int64) ([]JobItem, error) {
	var ids, ends *redis.StringSliceCmd
	_, err := j.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		ids = p.LRange(ctx, j.store.Keys.JobItems(id), offset, offset+limit-1)
		ends = p.LRange(ctx, j.store.Keys.JobEnds(id), offset, offset+limit-1)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read tasks of job %s: %w", id, err)
	}
	items := make([]JobItem, len(ids.Val()))
	for i, entry := range ids.Val() {
		task, created, _ := strings.Cut(entry, " ")
		items[i].ID, items[i].Created = task, store.ParseSeconds(created)
		if i < len(ends.Val()) {
			end, text, _ := strings.Cut(ends.Val()[i], " ")
			items[i].End, items[i].Text = JobEnd(end), text
		}
	}
	return items, nil
}

// Start lets a job run when its tasks are counted, or go on; somebody must work on it.
func (j *Jobs) Start(ctx context.Context, id string) error {
	_, err := j.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, j.store.Keys.Job(id), "start", "1")
		p.HDel(ctx, j.store.Keys.Job(id), "stop", "error")
		j.renewExpiry(ctx, p, id)
		return nil
	})
	return store.Wrap("start job "+id, err)
}

// Stop stops a job after its present task.
func (j *Jobs) Stop(ctx context.Context, id string) error {
	_, err := j.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, j.store.Keys.Job(id), "stop", "1")
		j.renewExpiry(ctx, p, id) // it may just have been forgotten
		return nil
	})
	return store.Wrap("stop job "+id, err)
}

func jobDuty(id string) string { return "job_" + id }

// ErrClaimLost is the error of a process that worked on a job for which another one may work by now: it changed nothing.
var ErrClaimLost = errors.New("the claim on the job is lost: start it again")

// JobWork is the hold of one process on a job. Each of its writes proves in Redis that it still holds the job; a process that
// lost it, because Redis was away for longer than the claim lasts, stops.
type JobWork struct {
	client  *queue.Client
	node    *listen.Node
	id      string
	items   int // tasks that it has added
	claimed time.Time
}

// WorkOn claims a job; nil if another process works on it.
func (j *Jobs) WorkOn(ctx context.Context, id string) (*JobWork, error) {
	w := &JobWork{client: j.client, node: listen.New(j.client), id: id, claimed: time.Now()}
	mine, err := w.node.TakeDuty(ctx, jobDuty(id), JobClaim)
	if err != nil || !mine {
		return nil, err
	}
	return w, nil
}

// Keep renews the claim when it is due: ErrClaimLost if another process has it.
func (w *JobWork) Keep(ctx context.Context) error {
	if time.Since(w.claimed) < JobClaim/5 {
		return nil
	}
	now := time.Now()
	mine, err := w.node.KeepDuty(ctx, jobDuty(w.id), JobClaim)
	if err == nil && !mine {
		err = ErrClaimLost
	}
	if err == nil {
		w.claimed = now
	}
	return err
}

// claimRest is how long before the end of a claim a change must have been sent.
const claimRest = 2 * time.Second

// Within is a context for one change of a job's task, after Keep. It ends before the claim may: a process that is held up for
// longer sends nothing more, since another one may work on the job by then.
func (w *JobWork) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, w.claimed.Add(JobClaim-claimRest))
}

// Leave gives up the claim.
func (w *JobWork) Leave(ctx context.Context) error { return w.node.YieldDuty(ctx, jobDuty(w.id)) }

// Stopped tells whether the job is to stop.
func (w *JobWork) Stopped(ctx context.Context) (bool, error) {
	stop, err := w.client.Store().RDB.HExists(ctx, w.client.Store().Keys.Job(w.id), "stop").Result()
	return stop, store.Wrap("read job "+w.id, err)
}

// Add adds tasks, up to 1,000 at a time, to a job that is counting.
func (w *JobWork) Add(ctx context.Context, items []JobItem) error {
	if len(items) == 0 {
		return nil
	}
	entries := make([]string, len(items))
	for i, item := range items {
		if entries[i] = item.ID; !item.Created.IsZero() {
			entries[i] += " " + store.Seconds(item.Created)
		}
	}
	err := w.write(ctx, store.Named(entries, "add", w.items)...)
	if err == nil {
		w.items += len(items)
	}
	return err
}

// Forget removes all tasks of a job that is counting, to count anew.
func (w *JobWork) Forget(ctx context.Context) error {
	w.items = 0
	return w.write(ctx, "forget")
}

// End writes the ends of the next tasks, up to 1,000 at a time; before is how many have theirs.
func (w *JobWork) End(ctx context.Context, before int64, items []JobItem) error {
	if len(items) == 0 {
		return nil
	}
	ends := make([]string, len(items))
	for i, item := range items {
		ends[i] = string(item.End) + " " + store.Head(store.ValidText(item.Text), jobText)
	}
	return w.write(ctx, store.Named(ends, "end", before)...)
}

// Become writes the job's state, and what is wrong if it stops by itself.
func (w *JobWork) Become(ctx context.Context, state JobState, more bool, problem string) error {
	return w.write(ctx, "become", string(state), store.Optional(more, "1"), store.Head(store.ValidText(problem), jobText))
}

func (w *JobWork) write(ctx context.Context, what ...any) error {
	args := append([]any{w.node.ID(), w.id, int64(store.JobLife.Seconds())}, what...)
	answer, err := w.client.Store().Eval(ctx, store.NewCall("job", w.client.Store().Keys.Duty(jobDuty(w.id)), args...))
	if err == nil && store.AsInt(answer) != 1 {
		err = ErrClaimLost
	}
	return store.Wrap("write job "+w.id, err)
}
