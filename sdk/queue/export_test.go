package queue

import (
	"context"
	"time"
)

// Names that tests of the protocol need and applications do not.
const (
	BlockDependencies     = blockDependencies
	InlineDependencies    = inlineDependencies
	MaxFailureText        = maxFailureText
	MaxLabels             = maxLabels
	MaxSubscriptionsBytes = maxSubscriptions
	NoteFor               = noteFor
	PublishBytes          = publishBytes
	PublishTries          = publishTries
	SecondTasks           = secondTasks
	SharedBytes           = sharedBytes
	WriteTasks            = writeTasks
)

var (
	OnceMark          = onceMark
	ParseSubscription = parseSubscription
	ReservedID        = reservedID
	Whens             = whens
)

// Config is the client's configuration, which a test may change.
func (c *Client) Config() *Config { return &c.config }

// WaitingTasks is how many tasks wait for a write of others.
func (c *Client) WaitingTasks() int {
	c.commits.mu.Lock()
	defer c.commits.mu.Unlock()
	return c.commits.tasks
}

// OnceRequest is a request that once.lua notes.
type OnceRequest onceRequest

// NewOnceRequest is a request with an ID and its content.
func NewOnceRequest(c *Client, id, content string) *OnceRequest {
	return &OnceRequest{c.store, id, onceMark([]byte(content))}
}

func (r *OnceRequest) Begin(ctx context.Context, specs []Spec) (word string, known []Spec, err error) {
	return (*onceRequest)(r).begin(ctx, specs)
}

func (r *OnceRequest) Tell(ctx context.Context, what string, specs []Spec) ([]any, error) {
	return (*onceRequest)(r).tell(ctx, what, specs)
}

func (s Subscription) WithDefaults() Subscription { return s.withDefaults() }

func (s *Subscription) Validate() error { return s.validate() }

func (u *Unique) Hash(queue string, parameters []byte) string { return u.hash(nil, queue, parameters) }

func (r Retry) Encode() string { return r.encode() }

func (r Retry) Most() time.Duration { return r.most() }

func (s *Schedule) Fields() []any { return s.fields(nil) }

// Write writes tasks without what an Enqueue does afterwards, as if the client died then.
func (q *Queue) Write(ctx context.Context, specs []Spec, receipts []Receipt) error {
	return q.client.commits.write(ctx, q.blocks(specs, receipts))
}

// PublishAnswer is what one block of a publication did.
type PublishAnswer struct{ Subscribers, Turns int }

// PublishBlock makes the tasks of the next subscribers.
func (c *Client) PublishBlock(ctx context.Context, p *Publication) (PublishAnswer, error) {
	answer, err := c.publishBlock(ctx, p)
	return PublishAnswer{answer.subscribers, answer.turns}, err
}

// OnceLife is how long a request is remembered.
const OnceLife = onceLife

// ParseTask reads the fields of a task's hash.
func ParseTask(id string, hash map[string]string) *Task { return newTask(id, hash) }
