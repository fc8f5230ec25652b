package manage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
)

const (
	// MaxJobItems is the maximum number of tasks of one job.
	MaxJobItems = 100_000
	// JobClaim is how long a claim on a job lasts after its last renewal. If the process dies, no other process can work
	// on the job for up to this long.
	JobClaim = 15 * time.Second

	// jobText is the maximum length in bytes of Job.Error and JobItem.Text. Longer texts are cut.
	jobText = 400
)

// ErrNoJob says that the job never existed, or was deleted.
var ErrNoJob = errors.New("no such job")

// JobState is the state of a job.
type JobState string

// A job goes counting → counted → running → done. It can be stopped on the way, and started again. If the process that
// works on it dies, another one can go on.
const (
	JobCounting JobState = "counting"
	JobCounted  JobState = "counted"
	JobRunning  JobState = "running"
	JobStopped  JobState = "stopped"
	JobDone     JobState = "done"
)

// JobEnd is the result of a job's action on one task.
type JobEnd string

// The results of an action on a task.
const (
	JobEndDone    JobEnd = "done"    // the action succeeded
	JobEndChanged JobEnd = "changed" // the task has changed since the job counted it, and was left alone
	JobEndRefused JobEnd = "refused" // the action was refused for another reason, such as the task's status
	JobEndGone    JobEnd = "gone"    // the task does not exist any more
	JobEndFailed  JobEnd = "failed"  // the action failed with an error
)

// Job is an action on many tasks. All of its state is in Redis: any process can work on it, but only one at a time.
type Job struct {
	ID      string
	Action  string
	Filter  string // the filter that chooses the tasks, as the job's author wrote it
	By      string // the job's author
	State   JobState
	Claimed bool   // a process works on the job
	Start   bool   // the job is to run as soon as its tasks are counted
	Stop    bool   // the job is to stop
	More    bool   // more than MaxJobItems tasks matched; the job has only the first ones
	Error   string // why the job stopped by itself
	Created time.Time
	Items   int64            // number of its tasks
	Ended   int64            // number of its tasks that have a result; they come first in the list
	Ends    map[JobEnd]int64 // number of tasks by result
}

// JobItem is one task of a job.
type JobItem struct {
	ID      string
	Created time.Time // when the task was created; zero in a job of an older version
	End     JobEnd    // "" while the job has not reached the task
	Text    string    // the reason for End
}

// Of reports whether task is the one that the job counted, and not a later task with the same ID.
func (i *JobItem) Of(task *queue.Task) bool {
	return task.ID == i.ID && (i.Created.IsZero() || i.Created.Equal(task.Created))
}

// Jobs reads, makes and works on the jobs of a tenant. It is safe for concurrent use.
type Jobs struct {
	client *queue.Client
	store  *store.Store
}

// NewJobs returns the Jobs of the client's tenant.
func NewJobs(client *queue.Client) *Jobs { return &Jobs{client, client.Store()} }

// New makes a job in the state counting.
func (j *Jobs) New(ctx context.Context, action, filter, by string) (*Job, error) {
	now, err := j.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	id := queue.NewID()
	_, err = j.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, j.store.Keys.Job(id), "action", action, "filter", filter, "by", by, "state", string(JobCounting),
			"created", store.Seconds(now))
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

// deleteOldest deletes all but the newest store.JobCount jobs. A process that works on a deleted job stops.
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

// renewExpiry lets Redis keep the job for another store.JobLife.
func (j *Jobs) renewExpiry(ctx context.Context, p redis.Pipeliner, id string) {
	for _, key := range []string{
		j.store.Keys.Job(id), j.store.Keys.JobItems(id), j.store.Keys.JobEnds(id),
		j.store.Keys.Jobs(),
	} {
		p.Expire(ctx, key, store.JobLife)
	}
}

// Get reads a job. The error is ErrNoJob if there is none.
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
		return read{
			p.HGetAll(ctx, j.store.Keys.Job(id)), p.LLen(ctx, j.store.Keys.JobItems(id)),
			p.LLen(ctx, j.store.Keys.JobEnds(id)), p.Exists(ctx, j.store.Keys.Duty(jobDuty(id))),
		}
	})
	var jobs []*Job
	for i, cmd := range cmds {
		hash := cmd.hash.Val()
		if len(hash) == 0 {
			continue
		}
		j := &Job{
			ID: ids[i], Action: hash["action"], Filter: hash["filter"], By: hash["by"], State: JobState(hash["state"]),
			Claimed: cmd.claim.Val() > 0, Start: hash["start"] != "", Stop: hash["stop"] != "", More: hash["more"] != "",
			Error:   hash["error"],
			Created: store.ParseSeconds(hash["created"]), Items: cmd.items.Val(), Ended: cmd.ends.Val(),
			Ends: make(map[JobEnd]int64),
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

// Items reads a page of a job's tasks, in the order in which the job works on them.
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

// Start marks a job to run once its tasks are counted, or to continue if it was stopped. A process that has called
// WorkOn does the work.
func (j *Jobs) Start(ctx context.Context, id string) error {
	_, err := j.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, j.store.Keys.Job(id), "start", "1")
		p.HDel(ctx, j.store.Keys.Job(id), "stop", "error")
		j.renewExpiry(ctx, p, id)
		return nil
	})
	return store.Wrap("start job "+id, err)
}

// Stop marks a job to stop: the process that works on it ends after the current task.
func (j *Jobs) Stop(ctx context.Context, id string) error {
	_, err := j.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, j.store.Keys.Job(id), "stop", "1")
		j.renewExpiry(ctx, p, id) // if the job was just deleted, HSET has made its key anew, without an expiry
		return nil
	})
	return store.Wrap("stop job "+id, err)
}

func jobDuty(id string) string { return "job_" + id }

// ErrClaimLost says that the process does not hold the claim on the job any more, and that another process may hold it.
// The call changed nothing.
var ErrClaimLost = errors.New("the claim on the job is lost: start it again")

// JobWork is the claim of one process on a job. Each write checks in Redis that the process still has the claim. A
// process that has lost the claim, because Redis was away for longer than JobClaim, stops.
type JobWork struct {
	client  *queue.Client
	node    *listen.Node
	id      string
	items   int       // number of tasks added by this process
	claimed time.Time // when the claim was last renewed, by the process's own clock
}

// WorkOn claims a job for this process. It returns nil if another process works on the job.
func (j *Jobs) WorkOn(ctx context.Context, id string) (*JobWork, error) {
	w := &JobWork{client: j.client, node: listen.New(j.client), id: id, claimed: time.Now()}
	mine, err := w.node.TakeDuty(ctx, jobDuty(id), JobClaim)
	if err != nil || !mine {
		return nil, err
	}
	return w, nil
}

// Keep renews the claim if a fifth of JobClaim has passed. It returns ErrClaimLost if the claim has expired or another
// process has it.
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

// claimRest is how long before the end of the claim a process sends its last change.
const claimRest = 2 * time.Second

// Within makes the context for the next changes to the job's tasks; call it right after Keep. The context ends
// claimRest before the claim can end. So a process that is held up for longer sends no more changes, because another
// process may work on the job by then.
func (w *JobWork) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, w.claimed.Add(JobClaim-claimRest))
}

// Leave gives up the claim.
func (w *JobWork) Leave(ctx context.Context) error { return w.node.YieldDuty(ctx, jobDuty(w.id)) }

// Stopped reports whether the job is to stop.
func (w *JobWork) Stopped(ctx context.Context) (bool, error) {
	stop, err := w.client.Store().RDB.HExists(ctx, w.client.Store().Keys.Job(w.id), "stop").Result()
	return stop, store.Wrap("read job "+w.id, err)
}

// Add appends tasks, up to 1,000 at a time, to a job in state counting.
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

// Forget removes all tasks of a job in state counting, so that they can be counted again.
func (w *JobWork) Forget(ctx context.Context) error {
	w.items = 0
	return w.write(ctx, "forget")
}

// End records the results of the next tasks, up to 1,000 at a time; before is the number of results already recorded.
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

// Become records the job's state. If more is true, it also sets Job.More. problem is why the job stopped by itself; ""
// leaves Job.Error as it is.
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
