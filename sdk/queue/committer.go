package queue

import (
	"context"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

const (
	// blockBytes is the maximum size of one script call, and of one round trip, in bytes, unless a single task is larger.
	blockBytes = 4 << 20
	// writeTasks is the maximum number of tasks in one round trip.
	writeTasks = 20 * store.BlockTasks
	// sharedBytes is the maximum size of a call that shares a round trip with other calls, in bytes. Such a call also has
	// fewer than store.BlockTasks tasks. So no small call waits until a large one is sent.
	sharedBytes = 256 << 10
)

// maxWrites is the maximum number of shared round trips at a time. The second one begins only when secondTasks tasks
// wait. So the client prepares one write while Redis executes another, and a few concurrent callers still share one
// script call.
const (
	maxWrites   = 2
	secondTasks = 4
)

// committer writes the tasks that the callers of a client enqueue. Concurrent calls share round trips (group commit):
// calls that arrive during a write are sent together in the next write. There is no timer.
//
//	idle ── a call ──▶ its caller writes it ── nothing waits ──▶ idle
//	                            │ more calls came meanwhile        ▲
//	                            ▼                                  │
//	                  a goroutine writes them ──── nothing waits ──┘
//	                            ▲ │
//	                            └─┘ more calls came meanwhile
//
// A second goroutine writes at the same time if at least secondTasks tasks wait.
//
// A call that is alone, or is large, starts no goroutine, and ends with its own context. A shared write continues until
// the latest deadline of its callers: if the context of one caller ends, that caller returns at once, and the write
// continues for the others.
type committer struct {
	client *Client

	mu      sync.Mutex // guards the following fields
	waiting []*commit  // oldest first
	tasks   int        // number of tasks in waiting
	writes  int        // number of callers and goroutines that write, without callers with large calls
}

// commit holds the blocks of one call.
type commit struct {
	blocks      []*taskBlock // the caller can read their results after done is closed
	tasks, size int          // sums over all blocks
	deadline    time.Time    // of the caller's context; zero for none
	done        chan struct{}
}

// taskBlock is a group of tasks of one queue that are written together or not at all.
type taskBlock struct {
	queue string
	args  []any // arguments of the tasks, as batch.lua takes them
	tasks int
	size  int // in bytes: see Spec.Size
	// weight measures how much work the block is for Redis; a task without dependencies has weight 1.
	weight int

	answers  []string // replies of enqueue.lua, one for each task
	replicas int      // number of replicas that have the tasks
	waited   error    // why the number of replicas is unknown; nil if it is known
	err      error
}

// write writes the blocks in the given order. Afterwards each block has its answers or its error. write itself returns
// an error only if ctx has ended. The blocks may or may not be written then, and the caller must not read them.
func (c *committer) write(ctx context.Context, blocks []*taskBlock) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	mine := &commit{blocks: blocks}
	for _, b := range blocks {
		mine.tasks, mine.size = mine.tasks+b.tasks, mine.size+b.size
	}
	if mine.size > sharedBytes {
		if mine.blocks = c.admitted(ctx, blocks); len(mine.blocks) == 0 {
			return nil
		}
	}
	alone := mine.tasks >= store.BlockTasks || mine.size > sharedBytes
	if alone || c.begin(ctx, mine) {
		if !alone {
			defer c.end()
		}
		c.writeAll(ctx, []*commit{mine})
		return nil
	}
	select {
	case <-mine.done:
		return nil
	case <-ctx.Done():
		c.withdraw(mine)
		return ctx.Err()
	}
}

// admitted asks Redis about large blocks before they are sent, and returns the blocks that are not refused. The others
// have their errors.
func (c *committer) admitted(ctx context.Context, blocks []*taskBlock) (left []*taskBlock) {
	var calls []store.Call
	var asked []*taskBlock
	for _, b := range blocks {
		if b.size <= sharedBytes {
			continue
		}
		args := []any{c.client.store.Clock, b.queue, 0}
		bytes := 0 // of parameters: b.size has labels, too
		for at := 0; at < len(b.args); {
			values, _ := b.args[at+2].(int)
			args = append(args, b.args[at])
			parameters := b.args[at+1]
			for i := at + 3; i < at+3+values; i += 2 {
				if b.args[i] == "bytes" {
					parameters = b.args[i+1]
				}
			}
			bytes += len(store.AsString(parameters))
			at += 3 + values
		}
		args[2] = bytes
		calls = append(calls, store.NewCall("admits", c.client.store.Keys.Pending(b.queue), args...))
		asked = append(asked, b)
	}
	for i, reply := range c.client.store.EvalAll(ctx, calls) {
		if limited(reply.Err()) {
			asked[i].err = reply.Err()
		}
	}
	return slices.DeleteFunc(slices.Clone(blocks), func(b *taskBlock) bool { return b.err != nil })
}

// limited reports whether a pause, the limit of a queue or a quota has refused tasks.
func limited(err error) bool {
	return slices.ContainsFunc([]string{"QUEUEFULL", "PAUSED", "QUOTA"}, func(prefix string) bool {
		return redis.HasErrorPrefix(err, prefix)
	})
}

// begin reports whether the caller must write its commit itself, because no write is in progress. If not, begin adds
// the commit to those that wait for the next write.
func (c *committer) begin(ctx context.Context, mine *commit) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes == 0 {
		c.writes++
		return true
	}
	mine.done = make(chan struct{})
	mine.deadline, _ = ctx.Deadline()
	c.waiting, c.tasks = append(c.waiting, mine), c.tasks+mine.tasks
	if c.writes < maxWrites && c.tasks >= secondTasks {
		c.writes++
		go c.run()
	}
	return false
}

// end is called after a caller's own write, even if that panicked. If commits have come meanwhile, it starts a
// goroutine that writes them.
func (c *committer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.writes--
	} else {
		go c.run()
	}
}

// withdraw removes a commit from waiting, unless a write has taken it already.
func (c *committer) withdraw(mine *commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.waiting, mine); i >= 0 {
		c.waiting, c.tasks = slices.Delete(c.waiting, i, i+1), c.tasks-mine.tasks
	}
}

// run writes commits until none waits. The commits belong to several callers, so run uses no caller's context.
func (c *committer) run() {
	ctx := context.Background()
	for commits := c.take(); len(commits) > 0; commits = c.take() {
		c.writeAll(ctx, commits)
		for _, commit := range commits {
			close(commit.done)
		}
		goruntime.Gosched() // lets callers that have their answers enqueue more tasks for the next write
	}
}

// take removes the commits of the next write from waiting, and returns them. If none waits, it decrements writes.
func (c *committer) take() []*commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, tasks, size := 0, 0, 0
	for ; n < len(c.waiting); n++ {
		next := c.waiting[n]
		if n > 0 && (tasks+next.tasks > writeTasks || size+next.size > blockBytes) {
			break
		}
		tasks, size = tasks+next.tasks, size+next.size
	}
	if n == 0 {
		c.writes--
	}
	commits := slices.Clone(c.waiting[:n])
	c.waiting, c.tasks = slices.Delete(c.waiting, 0, n), c.tasks-tasks
	return commits
}

// writeAll writes commits in one round trip, with as few script calls as possible. If Redis refuses a script call of
// several blocks (queue full, missing dependency), writeAll sends each of these blocks again in a separate call,
// because some may be accepted.
func (c *committer) writeAll(ctx context.Context, commits []*commit) {
	var blocks []*taskBlock
	var latest time.Time
	endless := false
	for _, commit := range commits {
		blocks = append(blocks, commit.blocks...)
		endless = endless || commit.deadline.IsZero()
		if commit.deadline.After(latest) {
			latest = commit.deadline
		}
	}
	if !endless {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, latest)
		defer cancel()
	}
	var single [][]*taskBlock
	groups := grouped(blocks)
	c.send(ctx, groups)
	for _, group := range groups {
		if len(group) > 1 && (limited(group[0].err) || redis.HasErrorPrefix(group[0].err, "DEPENDENCY")) {
			single = append(single, slices.Collect(slices.Chunk(group, 1))...)
		}
	}
	if len(single) > 0 {
		c.send(ctx, single)
	}
}

// grouped puts blocks of the same queue together for one script call, as many as fit, and keeps their order.
func grouped(blocks []*taskBlock) (groups [][]*taskBlock) {
	if len(blocks) == 1 {
		return [][]*taskBlock{blocks}
	}
	type room struct{ group, weight, size int }
	left := make(map[string]room)
	for _, b := range blocks {
		r, ok := left[b.queue]
		if !ok || b.weight > r.weight || b.size > r.size {
			r = room{len(groups), store.BlockTasks, blockBytes}
			groups = append(groups, nil)
		}
		groups[r.group] = append(groups[r.group], b)
		left[b.queue] = room{r.group, r.weight - b.weight, r.size - b.size}
	}
	return groups
}

// send writes each group in one script call, and stores the answers in its blocks.
func (c *committer) send(ctx context.Context, groups [][]*taskBlock) {
	calls := make([]store.Call, len(groups))
	for i, group := range groups {
		args := [][]any{{c.client.store.Clock, group[0].queue}}
		for _, b := range group {
			args = append(args, b.args)
		}
		calls[i] = store.NewCall("enqueue", c.client.store.Keys.Pending(group[0].queue), slices.Concat(args...)...)
	}
	cmds, replicas, waited := c.client.store.EvalReplicated(ctx, calls, c.client.config.Replicas,
		c.client.config.ReplicaTimeout)
	for i, group := range groups {
		text, err := cmds[i].Text()
		answers, tasks := strings.Fields(text), 0
		for _, b := range group {
			tasks += b.tasks
		}
		if err == nil && len(answers) != tasks {
			err = store.ErrReply
		}
		for _, b := range group {
			if b.replicas, b.waited, b.err = replicas, waited, err; err == nil {
				b.answers, answers = answers[:b.tasks], answers[b.tasks:]
			}
		}
	}
}
