package replay

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

// The services of a run, as bits of Header.Services.
const (
	hasKV = 1 << iota
	hasHTTP
	hasSecrets
	hasSQL
	hasEnqueue
	hasPublish
	hasCheckpoint
	hasDependencies
	hasVars
	enqueuesAtOnce
	publishesAtOnce
)

// Services returns the services of the run's guest. While the tape records, they are live services whose answers are
// recorded; in a replay, they are those of the record. A nil tape returns live.
func (t *Tape) Services(live service.Services) service.Services {
	if t == nil {
		return live
	}
	if !t.playing {
		for i, has := range [...]bool{
			live.KV != nil, live.HTTP != nil, live.Secrets != nil, live.SQL != nil, live.Enqueue != nil, live.Publish != nil,
			live.Checkpoint != nil, live.Dependencies != nil, live.Vars, live.EnqueueAtOnce, live.PublishAtOnce,
		} { // in the order of the bits
			if has {
				t.services |= 1 << i
			}
		}
	}
	has := func(bit int) bool { return t.services&bit != 0 }
	s := service.Services{
		Config: live.Config, Vars: has(hasVars), EnqueueAtOnce: has(enqueuesAtOnce), PublishAtOnce: has(publishesAtOnce),
	}
	if has(hasKV) {
		s.KV = tapedKV{t, live.KV}
	}
	if has(hasHTTP) {
		s.HTTP = tapedHTTP{t, live.HTTP}
	}
	if has(hasSecrets) {
		s.Secrets = tapedSecrets{t, live.Secrets}
	}
	if has(hasSQL) {
		s.SQL = tapedSQL{t, live.SQL}
	}
	if has(hasEnqueue) {
		s.Enqueue = tapedEnqueue{t, live.Enqueue}
	}
	if has(hasPublish) {
		s.Publish = tapedPublish{t, live.Publish}
	}
	if has(hasCheckpoint) {
		s.Checkpoint = tapedCheckpoint{t, live.Checkpoint}
	}
	if has(hasDependencies) {
		s.Dependencies = tapedDependencies{t, live.Dependencies}
	}
	return s
}

type (
	tapedKV struct {
		t    *Tape
		live service.KV
	}
	tapedHTTP struct {
		t    *Tape
		live service.HTTP
	}
	tapedSecrets struct {
		t    *Tape
		live service.Secrets
	}
	tapedSQL struct {
		t    *Tape
		live service.SQL
	}
	tapedEnqueue struct {
		t    *Tape
		live service.Enqueuer
	}
	tapedPublish struct {
		t    *Tape
		live service.Publisher
	}
	tapedCheckpoint struct {
		t    *Tape
		live service.Checkpoint
	}
	tapedDependencies struct {
		t    *Tape
		live service.Dependencies
	}
)

// call returns the answer to a call of a service: in a replay the recorded one, else that of live, which it records.
// asked are the arguments that identify the call.
func (t *Tape) call(of kind, live func() ([][]byte, error), asked ...string) (e event, err error) {
	if t.playing {
		e = t.next(of, asked...)
		return e, e.err()
	}
	e = event{kind: of, asked: asked}
	e.parts, err = live()
	t.add(e, err)
	return e, err
}

// bytes is call for an answer of bytes.
func (t *Tape) bytes(of kind, live func() ([]byte, error), asked ...string) ([]byte, error) {
	e, err := t.call(of, func() ([][]byte, error) {
		value, err := live()
		return [][]byte{value}, err
	}, asked...)
	return e.part(0), err
}

// done is call for a call without an answer.
func (t *Tape) done(of kind, live func() error, asked ...string) error {
	_, err := t.call(of, func() ([][]byte, error) { return nil, live() }, asked...)
	return err
}

func (s tapedKV) Get(ctx context.Context, bucket, key string) ([]byte, error) {
	return s.t.bytes(kvGet, func() ([]byte, error) { return s.live.Get(ctx, bucket, key) }, bucket, key)
}

func (s tapedKV) Set(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error {
	return s.t.done(kvSet, func() error { return s.live.Set(ctx, bucket, key, value, ttl) }, bucket, key)
}

func (s tapedKV) Delete(ctx context.Context, bucket, key string) (bool, error) {
	e, err := s.t.call(kvDelete, func() ([][]byte, error) {
		existed, err := s.live.Delete(ctx, bucket, key)
		if existed {
			return numbers(1), err
		}
		return nil, err
	}, bucket, key)
	return e.number64(0) != 0, err
}

func (s tapedKV) Increment(ctx context.Context, bucket, key string, delta int64) (int64, error) {
	e, err := s.t.call(kvIncrement, func() ([][]byte, error) {
		sum, err := s.live.Increment(ctx, bucket, key, delta)
		return numbers(sum), err
	}, bucket, key)
	return e.number64(0), err
}

func (s tapedKV) Swap(ctx context.Context, bucket, key string, old, value []byte, ttl time.Duration) ([]byte, error) {
	return s.t.bytes(kvSwap, func() ([]byte, error) { return s.live.Swap(ctx, bucket, key, old, value, ttl) }, bucket, key)
}

func (s tapedKV) List(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	e, err := s.t.call(kvList, func() ([][]byte, error) {
		keys, err := s.live.List(ctx, bucket, prefix, after, limit)
		return parts(keys), err
	}, bucket, prefix, after)
	return e.texts(0), err
}

// Do records the status, the body, and then each header with its name before each of its values.
func (s tapedHTTP) Do(ctx context.Context, r service.Request) (service.Response, error) {
	e, err := s.t.call(httpDo, func() ([][]byte, error) {
		response, err := s.live.Do(ctx, r)
		all := append(numbers(int64(response.Status)), response.Body)
		for _, name := range slices.Sorted(maps.Keys(response.Headers)) {
			for _, value := range response.Headers[name] {
				all = append(all, []byte(name), []byte(value))
			}
		}
		return all, err
	}, r.Method, r.URL)
	response := service.Response{Status: int(e.number64(0)), Body: e.part(1)}
	if headers := e.texts(2); len(headers) > 1 {
		response.Headers = map[string][]string{}
		for pair := range slices.Chunk(headers[:len(headers)/2*2], 2) {
			response.Headers[pair[0]] = append(response.Headers[pair[0]], pair[1])
		}
	}
	return response, err
}

// Secret records only the name.
func (s tapedSecrets) Secret(ctx context.Context, name string) (value []byte, err error) {
	err = s.t.done(secretGet, func() error {
		value, err = s.live.Secret(ctx, name)
		return err
	}, name)
	switch {
	case err != nil:
	case s.t.playing:
		given, ok := s.t.given.values[name]
		if !ok {
			s.t.End(fmt.Errorf("the replay has no value of the secret %q: pass --secret %s=VALUE", name, name))
		}
		value = slices.Clone(given)
	default:
		s.t.reveal(name, value)
	}
	return value, err
}

func (s tapedSQL) Query(ctx context.Context, database, statement string, list []service.SQLValue) ([]byte, error) {
	return s.t.bytes(sqlQuery, func() ([]byte, error) { return s.live.Query(ctx, database, statement, list) }, database,
		statement)
}

func (s tapedSQL) Commit(ctx context.Context, database, step string, value []byte) ([]byte, error) {
	commit := func() ([]byte, error) { return s.live.Commit(ctx, database, step, value) }
	return s.t.bytes(sqlCommit, commit, database, step)
}

func (s tapedSQL) Rollback(ctx context.Context, database string) error {
	return s.t.done(sqlRollback, func() error { return s.live.Rollback(ctx, database) }, database)
}

func (s tapedSQL) Step(ctx context.Context, database, step string) ([]byte, error) {
	return s.t.bytes(sqlStep, func() ([]byte, error) { return s.live.Step(ctx, database, step) }, database, step)
}

func (s tapedEnqueue) Enqueue(ctx context.Context, child service.Child) (string, error) {
	id, err := s.t.bytes(enqueue, func() ([]byte, error) {
		id, err := s.live.Enqueue(ctx, child)
		return []byte(id), err
	}, child.Queue)
	s.t.sent(err, "enqueued %s to %s", id, child.Queue)
	return string(id), err
}

func (s tapedPublish) Publish(ctx context.Context, p service.Publication) (string, error) {
	id, err := s.t.bytes(publish, func() ([]byte, error) {
		id, err := s.live.Publish(ctx, p)
		return []byte(id), err
	}, p.Topic)
	s.t.sent(err, "published %s to topic %s", id, p.Topic)
	return string(id), err
}

// sent notes what the guest has sent in a replay.
func (t *Tape) sent(err error, format string, id []byte, to string) {
	if t.playing && err == nil {
		t.Sent = append(t.Sent, fmt.Sprintf(format, id, to))
	}
}

func (s tapedCheckpoint) Save(ctx context.Context, value []byte) error {
	return s.t.done(checkpointSave, func() error { return s.live.Save(ctx, value) })
}

// List records each dependency as "ID END".
func (s tapedDependencies) List(ctx context.Context) (all []service.Dependency, err error) {
	e, err := s.t.call(dependencyList, func() (list [][]byte, err error) {
		live, err := s.live.List(ctx)
		for _, d := range live {
			list = append(list, []byte(d.ID+" "+d.End))
		}
		return list, err
	})
	for _, text := range e.texts(0) {
		id, end, _ := strings.Cut(text, " ")
		all = append(all, service.Dependency{ID: id, End: end})
	}
	return all, err
}

func (s tapedDependencies) Result(ctx context.Context, id string) ([]byte, error) {
	return s.t.bytes(dependencyResult, func() ([]byte, error) { return s.live.Result(ctx, id) }, id)
}

// part returns a part of the answer, nil if there is none.
func (e *event) part(i int) []byte {
	if i >= len(e.parts) {
		return nil
	}
	return e.parts[i]
}

// texts returns the parts from one on as texts.
func (e *event) texts(from int) (all []string) {
	for i := from; i < len(e.parts); i++ {
		all = append(all, string(e.parts[i]))
	}
	return all
}

func parts(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all
}

// numbers and number64 write a number as a part, and read it.
func numbers(n int64) [][]byte { return [][]byte{binary.AppendVarint(nil, n)} }

func (e *event) number64(i int) int64 {
	n, _ := binary.Varint(e.part(i))
	return n
}
