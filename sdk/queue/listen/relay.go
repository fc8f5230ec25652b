package listen

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// RelayClient does what a relay needs of a tenant beside enqueueing: it makes Redis forget IDs, reads which tasks have
// ended, and publishes the state of the relay.
type RelayClient struct{ client *queue.Client }

// NewRelayClient returns a relay's client of a tenant.
func NewRelayClient(client *queue.Client) *RelayClient { return &RelayClient{client} }

// ForgetOnce sets how much longer Redis remembers IDs that were enqueued with Options.Once.
func (r *RelayClient) ForgetOnce(ctx context.Context, ids []string, after time.Duration) error {
	s := r.client.Store()
	_, err := store.Pipelined(ctx, s, ids, func(p redis.Pipeliner, id string) *redis.BoolCmd {
		return p.Expire(ctx, s.Keys.Once(id), after)
	})
	return err
}

// Report is an entry of a list of reports: a task with Options.Report has ended.
type Report struct{ Entry, Task string }

// Reports reads up to 1,000 reports of a list, the oldest first. If there is none, it waits for one, up to the time
// given. A task that ends again, after a retry by hand, is reported again. A report stays until ForgetReports. The end
// of a task that a Python listener ran is reported when the task is purged.
func (r *RelayClient) Reports(ctx context.Context, name string, wait time.Duration) ([]Report, error) {
	s := r.client.Store()
	answer, err := s.RDB.XRead(ctx, &redis.XReadArgs{
		Streams: []string{s.Keys.Reports(name), "0"}, Count: store.PageTasks, Block: wait,
	}).Result()
	if err != nil && !store.IsNil(err) {
		return nil, store.Wrap("read reports "+name, err)
	}
	var reports []Report
	for _, stream := range answer {
		for _, message := range stream.Messages {
			id, _ := message.Values["task"].(string)
			reports = append(reports, Report{message.ID, id})
		}
	}
	return reports, nil
}

// Ended says how a task ended.
type Ended struct {
	ID, Queue string
	Status    queue.Status
	Failure   *queue.Failure // nil if the task is complete
	At        time.Time      // by Redis's clock
}

// endedFields are the fields of a task's hash that Ended needs. Reading all fields would cost several times as much.
var endedFields = []string{"queue", "status", "updated", "reason", "error"}

// Ends reads how tasks ended. It leaves out those that have not, and returns the IDs of those that do not exist.
func (r *RelayClient) Ends(ctx context.Context, ids []string) (ends []Ended, gone []string, err error) {
	s := r.client.Store()
	cmds, err := store.Pipelined(ctx, s, ids, func(p redis.Pipeliner, id string) *redis.SliceCmd {
		return p.HMGet(ctx, s.Keys.Task(id), endedFields...)
	})
	if err != nil {
		return nil, nil, store.Wrap("read ends of tasks", err)
	}
	for i, cmd := range cmds {
		hash := store.HashOf(endedFields, cmd.Val())
		end := Ended{
			ID: ids[i], Queue: hash["queue"], Status: queue.Status(hash["status"]), At: store.ParseSeconds(hash["updated"]),
		}
		switch {
		case len(hash) == 0:
			gone = append(gone, ids[i])
		case end.Status == queue.Failed:
			task := queue.Task{Error: hash["error"], Reason: queue.Reason(hash["reason"])}
			failure := task.Failure()
			end.Failure = &failure
			ends = append(ends, end)
		case end.Status == queue.Complete:
			ends = append(ends, end)
		}
	}
	return ends, gone, nil
}

// ForgetReports removes reports from a list.
func (r *RelayClient) ForgetReports(ctx context.Context, name string, reports []Report) error {
	if len(reports) == 0 {
		return nil
	}
	s := r.client.Store()
	entries := make([]string, len(reports))
	for i, report := range reports {
		entries[i] = report.Entry
	}
	return store.Wrap("remove reports "+name, s.RDB.XDel(ctx, s.Keys.Reports(name), entries...).Err())
}

// RelayState is the state of a source of a database, as the relay that leads it published it last.
type RelayState struct {
	Name     string  `json:"name" doc:"Of the source, as in its metrics."`
	Table    string  `json:"table" doc:"The kind of its table, and the name if it is not Quern's own: outbox, raquel:jobs."`
	Leader   string  `json:"leader" doc:"The host, process and term of the relay."`
	Since    float64 `json:"since" doc:"When it became the leader."`
	Told     float64 `json:"told" doc:"When it published this."`
	Alive    bool    `json:"alive" doc:"Whether it has published anything in the last half minute."`
	Notified bool    `json:"notified" doc:"Whether notifications of new rows arrive."`
	Lag      float64 `json:"lag_seconds" doc:"The age of the oldest row that waits."`
	Waiting  int64   `json:"waiting" doc:"Rows; at most 10,000 are counted."`
	Refused  int64   `json:"refused" doc:"Rows that could be no task, or that cannot be changed; at most 10,000 are counted, and of another library's table those of the last hour."`
	Error    string  `json:"error,omitempty" doc:"Why rows wait."`
	Reports  string  `json:"reports,omitempty" doc:"The list in which Redis keeps which of its tasks have ended, until the relay has read that."`
	Parked   string  `json:"parked,omitempty" doc:"Why a row of another library's table cannot be changed: of the last one."`
}

const (
	// RelayInterval is how often a relay publishes its state. It counts as alive for relayLife after that.
	RelayInterval = 5 * time.Second
	relayLife     = 30 * time.Second
	// relayShown is how long the state of a relay that is gone is shown.
	relayShown = 7 * 24 * time.Hour
)

// Publish publishes the state of a source. It forgets sources that have been silent for a week. Told and Alive need not
// be set.
func (r *RelayClient) Publish(ctx context.Context, state RelayState) error {
	s := r.client.Store()
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	state.Told = float64(now.UnixMilli()) / 1000
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	states, err := relayStates(ctx, s)
	if err != nil {
		return err
	}
	states[state.Name] = state
	_, err = s.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, s.Keys.Relays(), state.Name, text)
		for name, other := range states {
			if other.Name != "" && other.silent(now) >= relayShown {
				forgetRelay(ctx, s, p, states, name)
			}
		}
		return nil
	})
	return store.Wrap("publish the state of a relay", err)
}

// relayStates reads the states of all sources. One of another version that cannot be read is empty.
func relayStates(ctx context.Context, s *store.Store) (map[string]RelayState, error) {
	texts, err := s.RDB.HGetAll(ctx, s.Keys.Relays()).Result()
	if err != nil {
		return nil, store.Wrap("read relays of "+s.Keys.Relays(), err)
	}
	states := make(map[string]RelayState, len(texts))
	for name, text := range texts {
		var state RelayState
		if json.Unmarshal([]byte(text), &state) != nil {
			state = RelayState{}
		}
		states[name] = state
	}
	return states, nil
}

// forgetRelay removes a source from the states, and its list of reports if no other source has the same: the list
// belongs to the table, and a source that was renamed has another name for the same table.
func forgetRelay(
	ctx context.Context, s *store.Store, p redis.Pipeliner, states map[string]RelayState, name string,
) {
	reports := states[name].Reports
	delete(states, name)
	p.HDel(ctx, s.Keys.Relays(), name)
	for _, other := range states {
		if other.Reports == reports {
			return
		}
	}
	if reports != "" {
		p.Del(ctx, s.Keys.Reports(reports))
	}
}

// silent returns how long ago the relay published its state.
func (r *RelayState) silent(now time.Time) time.Duration {
	return now.Sub(time.UnixMilli(int64(r.Told * 1000)))
}

// Relays lists the sources whose relays enqueue tasks of the tenant, by name. A source whose relay has been silent for
// a week is left out.
func (f *Fleet) Relays(ctx context.Context) ([]RelayState, error) {
	s := f.client.Store()
	states, err := relayStates(ctx, s)
	if err != nil || len(states) == 0 {
		return []RelayState{}, err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	relays := make([]RelayState, 0, len(states))
	for _, r := range states {
		if r.Name == "" { // of another version
			continue
		}
		silent := r.silent(now)
		if r.Alive = silent < relayLife; silent < relayShown {
			relays = append(relays, r)
		}
	}
	slices.SortFunc(relays, func(a, b RelayState) int { return strings.Compare(a.Name, b.Name) })
	return relays, nil
}

// relayAlive is the error of ForgetRelay for a source whose relay was alive a moment ago. It is queue.ErrStatus.
type relayAlive struct {
	name   string
	silent time.Duration
}

func (e relayAlive) Error() string {
	return fmt.Sprintf("the relay of %s was alive %.0f s ago: end it, and wait half a minute", e.name, e.silent.Seconds())
}

func (relayAlive) Is(target error) bool { return target == queue.ErrStatus }

// ForgetRelay removes what Redis keeps of a source that is gone: its state, and which of its tasks have ended, unless
// another source relays the same table. The error is ErrNoRelay if there is no such source, and queue.ErrStatus if a
// relay leads it, or did so less than half a minute ago.
func (f *Fleet) ForgetRelay(ctx context.Context, name string) error {
	s := f.client.Store()
	states, err := relayStates(ctx, s)
	if err != nil {
		return err
	}
	r, ok := states[name]
	if !ok {
		return fmt.Errorf("%s: %w", name, ErrNoRelay)
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	if silent := r.silent(now); silent < relayLife {
		return relayAlive{name, max(0, silent)}
	}
	_, err = s.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		forgetRelay(ctx, s, p, states, name)
		return nil
	})
	return store.Wrap("forget the relay of "+name, err)
}
