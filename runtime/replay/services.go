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

func (s tapedKV) Get(ctx context.Context, bucket, key string) ([]byte, error) {
	if s.t.playing {
		e := s.t.next(kvGet, bucket, key)
		return e.part(0), e.err()
	}
	value, err := s.live.Get(ctx, bucket, key)
	s.t.add(event{kind: kvGet, asked: []string{bucket, key}, parts: [][]byte{value}}, err)
	return value, err
}

func (s tapedKV) Set(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error {
	if s.t.playing {
		e := s.t.next(kvSet, bucket, key)
		return e.err()
	}
	err := s.live.Set(ctx, bucket, key, value, ttl)
	s.t.add(event{kind: kvSet, asked: []string{bucket, key}}, err)
	return err
}

func (s tapedKV) Delete(ctx context.Context, bucket, key string) (bool, error) {
	if s.t.playing {
		e := s.t.next(kvDelete, bucket, key)
		return e.number64(0) != 0, e.err()
	}
	existed, err := s.live.Delete(ctx, bucket, key)
	n := int64(0)
	if existed {
		n = 1
	}
	s.t.add(event{kind: kvDelete, asked: []string{bucket, key}, parts: numbers(n)}, err)
	return existed, err
}

func (s tapedKV) Increment(ctx context.Context, bucket, key string, delta int64) (int64, error) {
	if s.t.playing {
		e := s.t.next(kvIncrement, bucket, key)
		return e.number64(0), e.err()
	}
	sum, err := s.live.Increment(ctx, bucket, key, delta)
	s.t.add(event{kind: kvIncrement, asked: []string{bucket, key}, parts: numbers(sum)}, err)
	return sum, err
}

func (s tapedKV) Swap(ctx context.Context, bucket, key string, old, value []byte, ttl time.Duration) ([]byte, error) {
	if s.t.playing {
		e := s.t.next(kvSwap, bucket, key)
		return e.part(0), e.err()
	}
	present, err := s.live.Swap(ctx, bucket, key, old, value, ttl)
	s.t.add(event{kind: kvSwap, asked: []string{bucket, key}, parts: [][]byte{present}}, err)
	return present, err
}

func (s tapedKV) List(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	if s.t.playing {
		e := s.t.next(kvList, bucket, prefix, after)
		return e.texts(0), e.err()
	}
	keys, err := s.live.List(ctx, bucket, prefix, after, limit)
	s.t.add(event{kind: kvList, asked: []string{bucket, prefix, after}, parts: parts(keys)}, err)
	return keys, err
}

// Do records the status, the body, and then each header with its name before each of its values.
func (s tapedHTTP) Do(ctx context.Context, r service.Request) (service.Response, error) {
	if s.t.playing {
		e := s.t.next(httpDo, r.Method, r.URL)
		response := service.Response{Status: int(e.number64(0)), Body: e.part(1)}
		if headers := e.texts(2); len(headers) > 1 {
			response.Headers = map[string][]string{}
			for pair := range slices.Chunk(headers[:len(headers)/2*2], 2) {
				response.Headers[pair[0]] = append(response.Headers[pair[0]], pair[1])
			}
		}
		return response, e.err()
	}
	response, err := s.live.Do(ctx, r)
	if !s.t.over {
		all := append(numbers(int64(response.Status)), response.Body)
		for _, name := range slices.Sorted(maps.Keys(response.Headers)) {
			for _, value := range response.Headers[name] {
				all = append(all, []byte(name), []byte(value))
			}
		}
		s.t.add(event{kind: httpDo, asked: []string{r.Method, r.URL}, parts: all}, err)
	}
	return response, err
}

// Secret records only the name.
func (s tapedSecrets) Secret(ctx context.Context, name string) ([]byte, error) {
	if s.t.playing {
		e := s.t.next(secretGet, name)
		if err := e.err(); err != nil {
			return nil, err
		}
		value, given := s.t.given[name]
		if !given {
			s.t.End(fmt.Errorf("the replay has no value of the secret %q: pass --secret %s=VALUE", name, name))
		}
		return slices.Clone(value), nil
	}
	value, err := s.live.Secret(ctx, name)
	s.t.add(event{kind: secretGet, asked: []string{name}}, err)
	if err == nil {
		s.t.reveal(name, value)
	}
	return value, err
}

func (s tapedSQL) Query(ctx context.Context, database, statement string, list []service.SQLValue) ([]byte, error) {
	if s.t.playing {
		e := s.t.next(sqlQuery, database, statement)
		return e.part(0), e.err()
	}
	answer, err := s.live.Query(ctx, database, statement, list)
	s.t.add(event{kind: sqlQuery, asked: []string{database, statement}, parts: [][]byte{answer}}, err)
	return answer, err
}

func (s tapedSQL) Commit(ctx context.Context, database, step string, value []byte) ([]byte, error) {
	if s.t.playing {
		e := s.t.next(sqlCommit, database, step)
		return e.part(0), e.err()
	}
	answer, err := s.live.Commit(ctx, database, step, value)
	s.t.add(event{kind: sqlCommit, asked: []string{database, step}, parts: [][]byte{answer}}, err)
	return answer, err
}

func (s tapedSQL) Rollback(ctx context.Context, database string) error {
	if s.t.playing {
		e := s.t.next(sqlRollback, database)
		return e.err()
	}
	err := s.live.Rollback(ctx, database)
	s.t.add(event{kind: sqlRollback, asked: []string{database}}, err)
	return err
}

func (s tapedSQL) Step(ctx context.Context, database, step string) ([]byte, error) {
	if s.t.playing {
		e := s.t.next(sqlStep, database, step)
		return e.part(0), e.err()
	}
	value, err := s.live.Step(ctx, database, step)
	s.t.add(event{kind: sqlStep, asked: []string{database, step}, parts: [][]byte{value}}, err)
	return value, err
}

func (s tapedEnqueue) Enqueue(ctx context.Context, child service.Child) (string, error) {
	if s.t.playing {
		e := s.t.next(enqueue, child.Queue)
		s.t.Sent = append(s.t.Sent, fmt.Sprintf("enqueued %s to %s", e.part(0), child.Queue))
		return string(e.part(0)), e.err()
	}
	id, err := s.live.Enqueue(ctx, child)
	s.t.add(event{kind: enqueue, asked: []string{child.Queue}, parts: [][]byte{[]byte(id)}}, err)
	return id, err
}

func (s tapedPublish) Publish(ctx context.Context, p service.Publication) (string, error) {
	if s.t.playing {
		e := s.t.next(publish, p.Topic)
		s.t.Sent = append(s.t.Sent, fmt.Sprintf("published %s to topic %s", e.part(0), p.Topic))
		return string(e.part(0)), e.err()
	}
	id, err := s.live.Publish(ctx, p)
	s.t.add(event{kind: publish, asked: []string{p.Topic}, parts: [][]byte{[]byte(id)}}, err)
	return id, err
}

func (s tapedCheckpoint) Save(ctx context.Context, value []byte) error {
	if s.t.playing {
		e := s.t.next(checkpointSave)
		return e.err()
	}
	err := s.live.Save(ctx, value)
	s.t.add(event{kind: checkpointSave}, err)
	return err
}

// List records each dependency as "ID END".
func (s tapedDependencies) List(ctx context.Context) (all []service.Dependency, err error) {
	if s.t.playing {
		e := s.t.next(dependencyList)
		for _, text := range e.texts(0) {
			id, end, _ := strings.Cut(text, " ")
			all = append(all, service.Dependency{ID: id, End: end})
		}
		return all, e.err()
	}
	all, err = s.live.List(ctx)
	list := make([][]byte, len(all))
	for i, d := range all {
		list[i] = []byte(d.ID + " " + d.End)
	}
	s.t.add(event{kind: dependencyList, parts: list}, err)
	return all, err
}

func (s tapedDependencies) Result(ctx context.Context, id string) ([]byte, error) {
	if s.t.playing {
		e := s.t.next(dependencyResult, id)
		return e.part(0), e.err()
	}
	result, err := s.live.Result(ctx, id)
	s.t.add(event{kind: dependencyResult, asked: []string{id}, parts: [][]byte{result}}, err)
	return result, err
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
