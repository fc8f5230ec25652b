package queue

import (
	"context"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"

	"github.com/redis/go-redis/v9"
)

const (
	// blockBytes bounds what one script call writes, beside blockTasks.
	blockBytes = 4 << 20
	// writeTasks bounds what one round trip writes; blockBytes bounds its bytes as well, unless a single task is larger.
	writeTasks = 20 * store.BlockTasks
	// sharedBytes bounds a call that shares a round trip, as does a block: no small call waits for a large one to be sent.
	sharedBytes = 256 << 10
)

// maxWrites is how many round trips are under way at a time, the second one only when secondTasks wait: so the client works while
// Redis does, and few callers still share one script call.
const (
	maxWrites   = 2
	secondTasks = 4
)

// committer writes what the callers of a client enqueue. Concurrent calls share round trips (group commit): what comes while a
// write is under way goes with the next one. There is no timer.
//
//	idle ── a call ──▶ its caller writes it ── nothing waits ──▶ idle
//	                            │ others came meanwhile            ▲
//	                            ▼                                  │
//	                  a goroutine writes theirs ── nothing waits ──┘
//	                            ▲ │
//	                            └─┘ what came meanwhile
//
// A second goroutine writes at the same time when secondTasks wait.
//
// A call that comes alone, or is large, costs no goroutine, and its context bounds it. A shared write outlives the contexts of
// its callers, up to the latest deadline: a caller whose context ends returns at once, and the write goes on for the others.
type committer struct {
	client *Client

	mu      sync.Mutex // guards what follows
	waiting []*commit  // in the order in which they came
	tasks   int        // of those that wait
	writes  int        // how many write, callers and goroutines
}

// commit is the blocks of one call.
type commit struct {
	blocks      []*taskBlock // the caller's again when done is closed
	tasks, size int          // of all blocks
	deadline    time.Time    // the caller's; zero for none
	done        chan struct{}
}

// taskBlock is tasks of one queue that are written together or not at all.
type taskBlock struct {
	queue string
	args  []any // of the tasks, as batch.lua takes them
	tasks int
	size  int // bytes: see Spec.Size
	// weight is how much work it is for Redis: 1 is a task without dependencies.
	weight int

	answers  []string // of enqueue.lua, one for each task
	replicas int      // how many have them, or in waited why that is not known
	waited   error
	err      error
}

// write writes blocks, in this order, each of which then has its answers or its error. After an error of write itself, that of
// ctx, the blocks may be written or not, and must not be read.
func (c *committer) write(ctx context.Context, blocks []*taskBlock) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	mine := &commit{blocks: blocks}
	for _, b := range blocks {
		mine.tasks, mine.size = mine.tasks+b.tasks, mine.size+b.size
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

// begin tells whether the caller is to write, because nobody else does. Otherwise the commit waits.
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

// end follows the write of a caller, also one that panics. A goroutine writes what came meanwhile.
func (c *committer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.writes--
	} else {
		go c.run()
	}
}

// withdraw takes back a commit that no write carries yet.
func (c *committer) withdraw(mine *commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.waiting, mine); i >= 0 {
		c.waiting, c.tasks = slices.Delete(c.waiting, i, i+1), c.tasks-mine.tasks
	}
}

// run writes until nothing waits. What it writes is of many callers, so it has no caller's context.
func (c *committer) run() {
	ctx := context.Background()
	for commits := c.take(); len(commits) > 0; commits = c.take() {
		c.writeAll(ctx, commits)
		for _, commit := range commits {
			close(commit.done)
		}
		goruntime.Gosched() // whoever has its answer may be back with another task, which goes with the next write
	}
}

// take takes what the next write carries, or ends a writing if nothing waits.
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

// writeAll writes commits in one round trip, with as few script calls as may be. If a script call of several blocks is refused (queue
// full, missing dependency), each block is written again by itself: some of them may pass.
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
	var again [][]*taskBlock
	groups := grouped(blocks)
	c.send(ctx, groups)
	for _, group := range groups {
		if len(group) > 1 && (redis.HasErrorPrefix(group[0].err, "QUEUEFULL") || redis.HasErrorPrefix(group[0].err, "DEPENDENCY")) {
			again = append(again, slices.Collect(slices.Chunk(group, 1))...)
		}
	}
	if len(again) > 0 {
		c.send(ctx, again)
	}
}

// grouped joins the blocks of each queue that fit into one script call, in their order.
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

// send writes groups, each in one script call, and gives the blocks their answers.
func (c *committer) send(ctx context.Context, groups [][]*taskBlock) {
	calls := make([]store.Call, len(groups))
	for i, group := range groups {
		args := [][]any{{c.client.store.Clock, group[0].queue}}
		for _, b := range group {
			args = append(args, b.args)
		}
		calls[i] = store.NewCall("enqueue", c.client.store.Keys.Pending(group[0].queue), slices.Concat(args...)...)
	}
	cmds, replicas, waited := c.client.store.EvalReplicated(ctx, calls, c.client.config.Replicas, c.client.config.ReplicaTimeout)
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
