package manage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// ErrPaused is the error of an enqueue that a pause refuses. Such an error is a queue.ErrQueueFull, too.
var ErrPaused = store.ErrPaused

// maxPauseText is the maximum length of a Pause's Key, Who and Reason, in bytes.
const maxPauseText = 1024

// Pause stops hosts and workers from taking tasks of a queue, of a key in a queue, of a plugin or of the whole tenant,
// or stops a queue or the tenant from accepting new tasks. Python clients do not know pauses.
type Pause struct {
	// Queue or Plugin is what is paused. If both are "", it is the tenant.
	Queue  string `json:"queue,omitempty" doc:"The queue that is paused. Without queue and plugin it is the tenant."`
	Plugin string `json:"plugin,omitempty" doc:"The plugin that is paused."`
	// Key pauses, of the tasks of Queue, only those with this key.
	Key string `json:"key,omitempty" maxLength:"1024" doc:"Only the queue's tasks with this key are paused."`
	// Accepting is true if new tasks are refused. What tasks enqueue at their completion, dead letters and retries are
	// still accepted, as in a full queue; ticks of schedules wait.
	Accepting bool    `json:"accepting,omitempty" doc:"New tasks are refused; missing: no tasks are taken."`
	Who       string  `json:"who,omitempty" maxLength:"1024" doc:"Who paused it."`
	Reason    string  `json:"reason,omitempty" maxLength:"1024" doc:"Why."`
	Since     float64 `json:"since,omitempty" doc:"Since when; missing: unknown."` // seconds, by Redis's clock
}

// What names what is paused, for people.
func (p Pause) What() string {
	switch {
	case p.Key != "":
		return fmt.Sprintf("the key %q of the queue %s", p.Key, p.Queue)
	case p.Queue != "":
		return "the queue " + p.Queue
	case p.Plugin != "":
		return "the plugin " + p.Plugin
	}
	return "the tenant"
}

// Why says in words who paused it, since when and why, to follow "is paused"; "" if nothing is known.
func (p Pause) Why() string {
	text := ""
	if p.Since > 0 {
		text = " since " + time.Unix(int64(p.Since), 0).UTC().Format(time.RFC3339)
	}
	if p.Who != "" {
		text += " by " + p.Who
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	return text
}

// ResumeCommand has the arguments of the `quern` command that ends the pause. tenant is the name of its tenant.
func (p Pause) ResumeCommand(tenant string) []string {
	command := []string{"tenant", "resume", tenant}
	switch {
	case p.Queue != "":
		command = []string{"queue", "resume", p.Queue}
	case p.Plugin != "":
		command = []string{"plugin", "resume", p.Plugin}
	}
	if p.Key != "" {
		command = append(command, "--key", p.Key)
	}
	if p.Accepting {
		command = append(command, "--accepting")
	}
	return command
}

func (p Pause) scope() string {
	switch {
	case p.Plugin != "":
		return store.PluginScope + p.Plugin
	case p.Key != "":
		return store.KeyScope + p.Queue + " " + p.Key
	}
	return cmp.Or(p.Queue, store.TenantScope)
}

func (p Pause) field() string {
	if p.Accepting {
		return "accepting " + p.scope()
	}
	return "taking " + p.scope()
}

// Validate checks the pause.
func (p Pause) Validate() error {
	switch {
	case p.Queue != "" && p.Plugin != "":
		return fmt.Errorf("%w: pause of the queue %q and the plugin %q: name one of them", queue.ErrInvalid, p.Queue, p.Plugin)
	case p.Key != "" && (p.Queue == "" || p.Accepting):
		return fmt.Errorf("%w: pause of the key %q: name its queue, and pause taking: new tasks with it are accepted",
			queue.ErrInvalid, p.Key)
	case p.Plugin != "" && p.Accepting:
		return fmt.Errorf("%w: plugin %q: a plugin accepts no tasks, queues do: pause the accepting of its queues",
			queue.ErrInvalid, p.Plugin)
	case p.Plugin != "" && (strings.ContainsAny(p.Plugin, " \r\n\t") || len(p.Plugin) > 200):
		return fmt.Errorf("%w: plugin %q: use the name in its manifest, without spaces", queue.ErrInvalid, p.Plugin)
	case p.Queue != "":
		if err := queue.ValidQueue(p.Queue); err != nil {
			return err
		}
	}
	for what, text := range map[string]string{"key": p.Key, "reason": p.Reason, "who": p.Who} {
		if len(text) > maxPauseText || !utf8.ValidString(text) {
			return fmt.Errorf("%w: %s of the pause: use at most %d bytes of UTF-8 text", queue.ErrInvalid, what, maxPauseText)
		}
	}
	return nil
}

// Pauses reads and changes the pauses of a tenant.
type Pauses struct{ tenant *Manager }

// Pauses returns the pauses of the tenant.
func (m *Manager) Pauses() Pauses { return Pauses{m} }

// List reads all pauses: those of the tenant first, then those of queues with their keys, then those of plugins.
func (p Pauses) List(ctx context.Context) ([]Pause, error) {
	s := p.tenant.store
	paused, err := s.RDB.SMembers(ctx, s.Keys.Paused()).Result()
	if err != nil {
		return nil, store.Wrap("list pauses", err)
	}
	notes, err := s.RDB.HGetAll(ctx, s.Keys.Pauses()).Result()
	if err != nil {
		return nil, store.Wrap("list pauses", err)
	}
	list := []Pause{}
	for _, scope := range paused {
		if scope != "" && notes["taking "+scope] == "" { // paused without a note, by an earlier version
			list = append(list, pauseOf("taking "+scope, ""))
		}
	}
	for field, note := range notes {
		list = append(list, pauseOf(field, note))
	}
	slices.SortFunc(list, func(a, b Pause) int {
		return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.field(), b.field()))
	})
	return list, nil
}

// Of reads the pauses that keep each of the queues from taking or accepting tasks: its own and those of the tenant.
func (p Pauses) Of(ctx context.Context, queues ...string) ([][]Pause, error) {
	s := p.tenant.store
	all := make([][]Pause, len(queues))
	if n, err := s.RDB.HLen(ctx, s.Keys.Pauses()).Result(); err != nil || n == 0 {
		return all, store.Wrap("read pauses", err)
	}
	cmds, err := store.Pipelined(ctx, s, queues, func(pipe redis.Pipeliner, name string) *redis.SliceCmd {
		return pipe.HMGet(ctx, s.Keys.Pauses(), fieldsOf(name)...)
	})
	for i, cmd := range cmds {
		err = cmp.Or(err, cmd.Err())
		for at, value := range cmd.Val() {
			if text, ok := value.(string); ok {
				all[i] = append(all[i], pauseOf(fieldsOf(queues[i])[at], text))
			}
		}
	}
	return all, store.Wrap("read pauses", err)
}

func fieldsOf(name string) []string {
	return []string{"taking " + store.TenantScope, "accepting " + store.TenantScope, "taking " + name, "accepting " + name}
}

// pauseOf makes a Pause of a field of NS_pauses and its value.
func pauseOf(field, text string) Pause {
	what, scope, _ := strings.Cut(field, " ")
	since, note := store.ParsePause(text)
	p := Pause{Accepting: what == "accepting", Who: note.Who, Reason: note.Reason}
	if !since.IsZero() {
		p.Since = float64(since.UnixMicro()) / 1e6
	}
	if plugin, ok := strings.CutPrefix(scope, store.PluginScope); ok {
		p.Plugin = plugin
	} else if rest, ok := strings.CutPrefix(scope, store.KeyScope); ok {
		p.Queue, p.Key, _ = strings.Cut(rest, " ")
	} else if scope != store.TenantScope {
		p.Queue = scope
	}
	return p
}

// Pause begins a pause, or replaces its Who, Reason and Since. It ignores the Since of the argument. Running tasks
// continue.
func (p Pauses) Pause(ctx context.Context, one Pause) error {
	note, err := json.Marshal(store.PauseNote{Who: one.Who, Reason: one.Reason})
	if err != nil {
		return err
	}
	_, err = p.change(ctx, one, string(note))
	return err
}

// Resume ends a pause, and wakes the hosts. Of a queue or a key, a Resume of taking also ends a hold. It is no error
// if there is no such pause.
func (p Pauses) Resume(ctx context.Context, one Pause) error {
	answer, err := p.change(ctx, one, "")
	switch {
	case err != nil || one.Accepting:
		return err
	case one.Key != "":
		return store.Wrap("resume "+one.What(), p.tenant.store.Unhold(ctx, one.Queue, one.Key))
	case one.Queue != "":
		return p.tenant.Queue(one.Queue).Resume(ctx)
	case answer == "none":
		return nil
	}
	s := p.tenant.store
	served, err := s.RDB.ZRangeByScore(ctx, s.Keys.Queues(), &redis.ZRangeBy{Min: "1", Max: "+inf"}).Result()
	if err != nil {
		return store.Wrap("wake hosts", err)
	}
	for block := range slices.Chunk(served, 1000) {
		// If these messages are lost, or forbidden by an ACL, the listeners' poll finds the tasks.
		_, _ = s.RDB.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, name := range block {
				pipe.Publish(ctx, s.Keys.Channel(name), "")
			}
			return nil
		})
	}
	return nil
}

func (p Pauses) change(ctx context.Context, one Pause, note string) (string, error) {
	if err := one.Validate(); err != nil {
		return "", err
	}
	what, _, _ := strings.Cut(one.field(), " ")
	s := p.tenant.store
	reply, err := s.Eval(ctx, store.NewCall("pause", s.Keys.Paused(), s.Clock, what, one.scope(), note, store.MaxPauses,
		one.Key))
	if err != nil {
		return "", store.Wrap("pause "+one.What(), err)
	}
	answer := store.AsString(reply)
	if answer == "full" {
		return "", fmt.Errorf("%w: the tenant has %d pauses: end some, or pause the tenant", errManyPauses, store.MaxPauses)
	}
	return answer, nil
}

var errManyPauses = errors.New("too many pauses")
