package listen

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Node is one listener of a tenant, for all queues to which it listens. Redis knows a host or worker by the listener's
// ID. Its methods are safe for concurrent use. A Node starts no goroutine: its owner renews the lease.
type Node struct {
	client *queue.Client
	id     string
	pid    int

	mu     sync.Mutex
	queues map[string]bool // every queue that the node was ever registered for; guarded by mu
}

// New makes a node with a new ID. Join makes it known in Redis.
func New(c *queue.Client) *Node {
	name := c.Store().Name
	if name == "" {
		name, _ = os.Hostname()
	}
	return &Node{client: c, id: listenerID(name, os.Getpid()), pid: os.Getpid(), queues: make(map[string]bool)}
}

// ID returns the listener ID.
func (n *Node) ID() string { return n.id }

// Join adds the node to Redis, with a lease. It must be called before Register. Joining again renews the lease.
func (n *Node) Join(ctx context.Context) error {
	c := n.client
	_, err := c.Store().Eval(ctx, store.NewCall("join", c.Store().Keys.Nodes(), c.Store().Clock, n.id,
		c.Store().Lease.Seconds()))
	return store.Wrap("join", err)
}

// Register makes the node, which has joined, a listener of the queue. Registering again changes nothing.
func (n *Node) Register(ctx context.Context, name string) error {
	return n.RegisterAll(ctx, []string{name})[0]
}

// RegisterAll is Register for many queues. It returns one error, or nil, for each queue.
func (n *Node) RegisterAll(ctx context.Context, queues []string) []error {
	errs := make([]error, len(queues))
	var calls []store.Call
	var at []int // for each call, the index of its queue
	n.mu.Lock()
	for i, name := range queues {
		if errs[i] = queue.ValidQueue(name); errs[i] == nil {
			n.queues[name] = true
			calls, at = append(calls, n.listening("register", name)), append(at, i)
		}
	}
	n.mu.Unlock()
	for i, reply := range n.client.Store().EvalAll(ctx, calls) {
		errs[at[i]] = store.Wrap(fmt.Sprintf("register listener for %q", queues[at[i]]), reply.Err())
	}
	return errs
}

// listening returns a call of register.lua or unregister.lua.
func (n *Node) listening(script, name string) store.Call {
	k := n.client.Store().Keys
	return store.Call{
		Script: store.AllScripts[script], Keys: []string{k.Listeners(name), k.Queues()},
		Args: []any{n.id, name},
	}
}

// Forgotten returns those of the queues that Redis does not list any more, or whose set of listeners lacks the node.
// This happens when keys are deleted or an older state is restored. Register repairs both. Forgotten leaves out damaged
// queues.
func (n *Node) Forgotten(ctx context.Context, queues []string) (lost []string, err error) {
	type registration struct {
		listens *redis.BoolCmd
		known   *redis.FloatCmd
	}
	k := n.client.Store().Keys
	cmds, err := store.Pipelined(ctx, n.client.Store(), queues, func(p redis.Pipeliner, queue string) registration {
		return registration{p.SIsMember(ctx, k.Listeners(queue), n.id), p.ZScore(ctx, k.Queues(), queue)}
	})
	for i, cmd := range cmds {
		if cmd.listens.Err() == nil && !cmd.listens.Val() || store.IsNil(cmd.known.Err()) {
			lost = append(lost, queues[i])
		}
	}
	return lost, store.Wrap("read listeners", err)
}

// Unregister removes the node from the listeners of queues; a damaged queue does not stop it. Tasks of these queues
// that the node holds can still be settled.
func (n *Node) Unregister(ctx context.Context, queues ...string) error {
	calls, errs := make([]store.Call, len(queues)), make([]error, len(queues))
	for i, queue := range queues {
		calls[i] = n.listening("unregister", queue)
	}
	for i, reply := range n.client.Store().EvalAll(ctx, calls) {
		errs[i] = store.Wrap(fmt.Sprintf("unregister listener from %q", queues[i]), reply.Err())
		if ctx.Err() != nil || queue.IsUnavailable(errs[i]) {
			return cmp.Or(errs[i], ctx.Err())
		}
	}
	return errors.Join(errs...)
}

// Renew renews the lease and publishes about, which maps fields to texts. drain is true if an operator drains the node.
// ErrLeaseLost means that other listeners take the node for dead. Then its owner must drop its tasks, and join again as
// a new node.
func (n *Node) Renew(ctx context.Context, about map[string]string) (drain bool, err error) {
	c, lease := n.client, n.client.Store().Lease
	// What a dead listener has published outlasts its lease, so that the length is known if Redis's clock is set back.
	life := max(3*lease, store.MaxLease)
	args := []any{c.Store().Clock, n.id, lease.Seconds(), int64(life.Seconds()), "lease", lease.Seconds()}
	for field, text := range about {
		args = append(args, field, text)
	}
	answer, err := store.NewCall("renew", c.Store().Keys.Nodes(), args...).On(ctx, c.Store().Beats).Result()
	if err != nil {
		return false, fmt.Errorf("renew lease of %s: %w", n.id, err)
	}
	if answer == "lost" || answer == "lost drain" {
		return answer != "lost", fmt.Errorf("%s: %w", n.id, ErrLeaseLost)
	}
	return answer == "drain", nil
}

// Leave removes the node from the listeners of all queues. If the node holds no task, Leave also removes the node from
// Redis. Otherwise the node stays there until its lease ends, and other listeners reclaim its tasks.
func (n *Node) Leave(ctx context.Context) error {
	_, err := n.leave(ctx)
	return err
}

// leave is Leave, and also reports whether it has ended the node's lease.
func (n *Node) leave(ctx context.Context) (condemned bool, err error) {
	queues := n.everRegistered()
	if err := n.Unregister(ctx, queues...); err != nil {
		return false, err
	}
	if held, err := n.HeldAll(ctx, queues); len(held) > 0 || err != nil {
		return false, err
	}
	// A reserve may still be on its way. Once the lease is ended, that reserve gets no tasks. If it got tasks before, the
	// second HeldAll finds them, and other listeners reclaim them.
	if _, err := n.client.Store().Condemn(ctx, n.id, "own"); err != nil {
		return false, fmt.Errorf("end lease of %s: %w", n.id, err)
	}
	if held, err := n.HeldAll(ctx, queues); len(held) > 0 || err != nil {
		return true, err
	}
	return true, n.client.Store().Retire(ctx, n.id, "")
}

// everRegistered lists the queues that the node was ever registered for.
func (n *Node) everRegistered() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.queues))
}

// Marks returns those of the held tasks that are to be cancelled, and whether the node is to drain. A host calls it at
// each message on the control channel, and every third of a lease.
func (n *Node) Marks(ctx context.Context, ids []string) (cancelled []string, drain bool, err error) {
	k := n.client.Store().Keys
	cmds, err := store.Pipelined(ctx, n.client.Store(), append([]string{""}, ids...),
		func(p redis.Pipeliner, id string) *redis.BoolCmd {
			if id == "" {
				return p.HExists(ctx, k.Node(n.id), "drain")
			}
			return p.HExists(ctx, k.Task(id), "cancel")
		})
	for i, cmd := range cmds {
		if !cmd.Val() {
			continue
		}
		if i == 0 {
			drain = true
		} else {
			cancelled = append(cancelled, ids[i-1])
		}
	}
	return cancelled, drain, store.Wrap("read cancel and drain marks", err)
}

// Claim identifies the run of a task that a node holds. The Claim of a Reservation also distinguishes the task from a
// later task with the same ID.
type Claim struct {
	ID  string
	Run int64
	// Born says when the task was created (see store.BornAt), followed by when it was started (see store.StartedAt) if
	// the reserve started it. It is "" if unknown.
	Born string
}

// proof returns Run and Born in the form that scripts expect.
func (c *Claim) proof() string { return strconv.FormatInt(c.Run, 10) + c.Born }

// listenerID makes the ID of a listener: HOSTNAME~RANDOM_PID. Blueque parses the process ID. The random part makes the
// hostname unique: it distinguishes containers with the same hostname, and keeps Blueque's claim_orphan, which compares
// hostnames, away from Quern's listeners.
func listenerID(host string, pid int) string {
	host = strings.Map(func(r rune) rune {
		if r == '_' || r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}, cmp.Or(host, "localhost"))
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s~%s_%d", host, hex.EncodeToString(random[:]), pid)
}

// NodeAs returns a Node for an existing listener ID. pid is the ID of the process in which the listener runs its tasks.
func NodeAs(c *queue.Client, id string, pid int) *Node {
	return &Node{client: c, id: id, pid: pid, queues: make(map[string]bool)}
}

// Lease returns how long the node counts as alive after its last renewal.
func (n *Node) Lease() time.Duration { return n.client.Store().Lease }
