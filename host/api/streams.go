package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// Streams read from Redis every pollPause, and send a ping every pingPause.
	pollPause = time.Second
	pingPause = 15 * time.Second
	// streamWrite bounds one write to a client. streamLife bounds how long a stream lasts; then the client connects
	// again.
	streamWrite = 10 * time.Second
	streamLife  = time.Hour
	// maxWatched bounds the queues that a stream of changes follows.
	maxWatched = 1000
)

// sender writes the events of one stream to its client.
type sender struct {
	w       http.ResponseWriter
	control *http.ResponseController
	// counts reports whether the client may still see the stream. checked is when counts was last called. send calls it
	// again after accessAge, and a stream sends something at least every pingPause.
	counts  func() bool
	checked time.Time
}

// errExpired ends a stream whose client may not see it any more.
var errExpired = errors.New("the token has expired, was revoked, or grants something else now")

func (s *sender) send(event string, id int64, data any) error {
	if time.Since(s.checked) > accessAge {
		if s.checked = time.Now(); !s.counts() {
			return errExpired
		}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if id > 0 {
		text = fmt.Appendf(nil, "event: %s\nid: %d\ndata: %s\n\n", event, id, text)
	} else {
		text = fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, text)
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(streamWrite)) // every connection has one
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.control.Flush()
}

// stream registers an operation that answers with Server-Sent Events. begin returns an error to refuse the request.
// Otherwise it returns the function that sends events until ctx ends or a write fails.
func stream[I any](s *service, o operation, begin func(ctx context.Context,
	in *I) (func(context.Context, *sender) error, error),
) {
	o.stream = true
	add(s, o, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		run, err := begin(ctx, in)
		if err != nil {
			return nil, err
		}
		who := principal(ctx)
		place, err := s.streams.enter(ctx)
		if err != nil {
			return nil, err
		}
		callerOf(ctx).place.Give()
		return &huma.StreamResponse{Body: func(c huma.Context) {
			defer place.Give()
			ctx, cancel := context.WithTimeout(c.Context(), streamLife)
			defer cancel()
			defer context.AfterFunc(s.living(), cancel)()
			c.SetHeader("Content-Type", "text/event-stream")
			c.SetHeader("X-Accel-Buffering", "no") // otherwise a proxy would hold events back
			if c.Method() == http.MethodHead {
				return
			}
			r, w := humago.Unwrap(c)
			out := &sender{w: w, control: http.NewResponseController(w), checked: time.Now(), counts: func() bool {
				now, err := s.config.Access.identify(r)
				return err == nil && reflect.DeepEqual(now, who)
			}}
			_ = out.control.SetReadDeadline(time.Time{}) // the request's deadline would end the stream
			if out.send("ping", 0, struct{}{}) == nil {
				_ = run(ctx, out) // the client is gone, or streamLife is over
			}
		}}, nil
	})
}

// every calls look immediately and again after each pause, and sends pings. It returns when ctx ends, when look returns
// false for more, or when look or a ping fails.
func (s *sender) every(ctx context.Context, pause time.Duration, look func() (more bool, err error)) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	pinged := time.Now()
	for {
		more, err := look()
		if err != nil || !more {
			return err
		}
		if time.Since(pinged) >= pingPause {
			if err := s.send("ping", 0, struct{}{}); err != nil {
				return err
			}
			pinged = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (s *service) describeStreams() {
	type follow struct {
		InTask
		LastEventID int64 `header:"Last-Event-ID" doc:"Only lines with higher numbers."`
	}
	stream(s, revealing("/tenants/{tenant}/tasks/{id}/log/stream", "follow-log",
		"Follow a task's log: events line, with the line's number as ID, then end, with the task's status"),
		func(ctx context.Context, in *follow) (func(context.Context, *sender) error, error) {
			t := s.tenants[in.Tenant]
			if _, err := t.lines(ctx, in.ID, in.LastEventID); err != nil {
				return nil, err
			}
			return func(ctx context.Context, out *sender) error { return t.follow(ctx, out, in.ID, in.LastEventID) }, nil
		})
	stream(s, looking("/tenants/{tenant}/changes", "follow-changes",
		"Follow the queues: events queue, at first one for each, then for those that changed within a second; gone; nodes, with the number of listeners that are alive, at first and when others are; problem, while Redis is away"),
		func(_ context.Context, in *InTenant) (func(context.Context, *sender) error, error) {
			t := s.tenants[in.Tenant]
			return func(ctx context.Context, out *sender) error { return t.changes.follow(ctx, t, out) }, nil
		})
}

// follow sends the lines of a task's log whose numbers are greater than after, until the task has finished. It reads
// the task's status before the lines: once the task has finished, all its lines are there.
func (t *tenant) follow(ctx context.Context, out *sender, id string, after int64) error {
	return out.every(ctx, pollPause, func() (bool, error) {
		task, err := t.Client.Summary(ctx, id)
		lines, unread := []admin.LogLine(nil), err
		if err == nil {
			lines, unread = t.lines(ctx, id, after)
		}
		for _, line := range lines {
			if err := out.send("line", line.Number, line); err != nil {
				return false, err
			}
			after = line.Number
		}
		switch {
		case queue.IsUnavailable(unread):
			return true, out.send("problem", 0, map[string]string{"detail": "Redis is not available"})
		case unread != nil:
			return false, out.send("end", 0, map[string]string{"status": "gone"})
		case task.Status.Finished():
			return false, out.send("end", 0, map[string]queue.Status{"status": task.Status})
		}
		return true, nil
	})
}

// changes keeps the last counts of a tenant's queues and listeners. While streams follow them, one goroutine counts for
// all streams. A slow client misses some of the counts.
type changes struct {
	mu        sync.Mutex         // guards the fields below
	followers int                // open streams
	stop      context.CancelFunc // ends the goroutine that counts
	queues    map[string]change
	alive     []string      // the listeners that are alive
	nodes     int64         // the version in which alive last changed
	version   int64         // increases with each change of the fields
	problem   bool          // Redis is away
	news      chan struct{} // closed and replaced when version increases
}

// change is a queue, and the version in which it last changed.
type change struct {
	admin.Queue
	version int64
}

func (c *changes) follow(ctx context.Context, t *tenant, out *sender) error {
	c.mu.Lock()
	if c.followers++; c.followers == 1 {
		counting, stop := context.WithCancel(context.WithoutCancel(ctx))
		c.stop, c.queues, c.nodes, c.news = stop, make(map[string]change), 0, make(chan struct{})
		go c.count(counting, t)
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.followers--; c.followers == 0 {
			c.stop()
		}
	}()
	seen, sent := int64(0), make(map[string]bool) // sent has the queues that the client knows
	reported := false                             // whether the client knows of the problem
	ping := time.NewTicker(pingPause)
	defer ping.Stop()
	for {
		c.mu.Lock()
		news, problem := c.news, c.problem
		alive, nodesChanged := len(c.alive), c.nodes > seen
		changed := make(map[string]admin.Queue)
		for name, one := range c.queues {
			if one.version > seen {
				changed[name] = one.Queue
			}
		}
		var gone []string
		for name := range sent {
			if _, ok := c.queues[name]; !ok {
				gone = append(gone, name)
			}
		}
		seen = c.version
		c.mu.Unlock()
		if problem && !reported {
			if err := out.send("problem", 0, map[string]string{"detail": "Redis is not available"}); err != nil {
				return err
			}
		}
		reported = problem
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			if err := out.send("queue", 0, changed[name]); err != nil {
				return err
			}
			sent[name] = true
		}
		slices.Sort(gone)
		for _, name := range gone {
			if err := out.send("gone", 0, map[string]string{"queue": name}); err != nil {
				return err
			}
			delete(sent, name)
		}
		if nodesChanged {
			if err := out.send("nodes", 0, map[string]int{"alive": alive}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ping.C:
			if err := out.send("ping", 0, struct{}{}); err != nil {
				return err
			}
		case <-news:
		}
	}
}

// count counts the queues and listeners until the last follower leaves.
func (c *changes) count(ctx context.Context, t *tenant) {
	ticker := time.NewTicker(pollPause)
	defer ticker.Stop()
	for {
		known, err := t.Queues(ctx)
		names := slices.Sorted(maps.Keys(known))
		names = names[:min(len(names), maxWatched)]
		var shapes []admin.Queue
		if err == nil {
			shapes, err = t.QueueCounts(ctx, names)
		}
		var alive []string
		if err == nil {
			_, alive, _, err = t.Fleet.Leases(ctx)
			slices.Sort(alive)
		}
		if ctx.Err() == nil {
			c.compare(shapes, alive, err != nil)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// compare stores new counts, and wakes the followers if something changed.
func (c *changes) compare(shapes []admin.Queue, alive []string, problem bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.version + 1
	fresh := problem != c.problem
	c.problem = problem
	if !problem {
		missing := maps.Clone(c.queues)
		for _, shape := range shapes {
			delete(missing, shape.Queue)
			old, ok := c.queues[shape.Queue]
			if !ok || changed(old.Queue, shape) {
				old.version, fresh = next, true
			}
			c.queues[shape.Queue] = change{shape, old.version}
		}
		for name := range missing {
			delete(c.queues, name)
			fresh = true
		}
		if c.nodes == 0 || !slices.Equal(c.alive, alive) {
			c.alive, c.nodes, fresh = alive, next, true
		}
	}
	if fresh {
		c.version = next
		close(c.news)
		c.news = make(chan struct{})
	}
}

// changed reports whether a queue has changed. A longer wait of the oldest task alone is no change.
func changed(old, now admin.Queue) bool {
	if age := old.OldestPendingAgeSeconds; age > 0 && now.OldestPendingAgeSeconds >= age {
		old.OldestPendingAgeSeconds = now.OldestPendingAgeSeconds
	}
	before, _ := json.Marshal(old)
	after, _ := json.Marshal(now)
	return !bytes.Equal(before, after)
}
