package store

import (
	"cmp"
	"context"
	"embed"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// Script is a Lua script with its source.
type Script struct {
	*redis.Script
	Source string
}

// AllScripts are the files of the folder scripts, by name. Each is one transition, atomic in Redis; the file lists its KEYS, ARGV
// and RETURNS. The keys' names and what it uses of prelude.lua and batch.lua precede each.
var AllScripts = func() map[string]Script {
	read := func(name string) string {
		text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		return string(text)
	}
	var library []Declaration
	for line := range strings.Lines(luaNames) {
		library = append(library, NewDeclaration(line))
	}
	for paragraph := range strings.SplitSeq(read("prelude")+"\n"+read("batch"), "\n\n") {
		library = append(library, NewDeclaration(strings.TrimSuffix(paragraph, "\n")+"\n\n"))
	}
	all := make(map[string]Script)
	files, _ := scriptFiles.ReadDir("scripts")
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".lua")
		if name == "prelude" || name == "batch" {
			continue
		}
		source := WithUsed(library, read(name))
		all[name] = Script{redis.NewScript(source), source}
	}
	return all
}()

// Declaration is a part of the Lua code that scripts share: the names that it declares, and the words in it outside of rare
// functions.
type Declaration struct {
	Text   string
	names  map[string]bool
	common map[string]bool
}

// NewDeclaration reads a declaration of the prelude.
func NewDeclaration(text string) Declaration {
	d := Declaration{Text: text, names: make(map[string]bool), common: wordsOf(rareFunction.ReplaceAllString(text, "$1"))}
	for line := range strings.Lines(text) {
		if declared, ok := strings.CutPrefix(line, "local "); ok {
			name, _, _ := strings.Cut(strings.TrimPrefix(declared, "function "), "(")
			d.names[strings.Fields(name)[0]] = true
		}
	}
	return d
}

// rareFunction is a function that few calls of a script need, first line and rest. rareMark ends the first line.
var rareFunction = regexp.MustCompile(`(?ms)^(local function [^\n]*` + rareMark + `)(.*?^end\n)`)

const rareMark = " -- rare\n"

// WithUsed puts before a script what it uses of the library, in its order: Redis runs all of a script's declarations in each
// call, and with all of the library they would take longer than many a transition. What only a rare function uses is made when
// that runs, so that it must hold no state.
func WithUsed(library []Declaration, script string) string {
	above := make(map[string]bool) // the names that are declared before the script
	return inRare(library, using(library, NewDeclaration(script).common, above)+script, above)
}

// inRare puts into each rare function of a text what it uses of the library, except what is above.
func inRare(library []Declaration, text string, above map[string]bool) string {
	if !strings.Contains(text, rareMark) {
		return text
	}
	return rareFunction.ReplaceAllStringFunc(text, func(function string) string {
		parts := rareFunction.FindStringSubmatch(function)
		inside := maps.Clone(above)
		used := using(library, wordsOf(parts[2]), inside)
		return parts[1] + inRare(library, used, inside) + parts[2]
	})
}

// using is what these words use of the library, directly or through the words of what they use, except what is above. It adds the
// names to above.
func using(library []Declaration, used, above map[string]bool) (text string) {
	for _, d := range slices.Backward(library) { // a declaration uses only earlier ones
		for name := range d.names {
			if used[name] && !above[name] {
				text = d.Text + text
				maps.Copy(above, d.names)
				maps.Copy(used, d.common)
				break
			}
		}
	}
	return text
}

// wordsOf are the words of a Lua text outside comments.
func wordsOf(text string) map[string]bool {
	words := make(map[string]bool)
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			words[word] = true
		}
	}
	return words
}

// Call is a script with its arguments, sent alone or with others in one round trip.
type Call struct {
	Script Script
	Keys   []string
	Args   []any
}

// NewCall calls the script of that name with one key.
func NewCall(script, key string, args ...any) Call {
	return Call{AllScripts[script], []string{key}, args}
}

// Named are the arguments of a script for many queues or tasks, which follow the others.
func Named(names []string, args ...any) []any {
	for _, name := range names {
		args = append(args, name)
	}
	return args
}

// On runs the script; in full if Redis has forgotten it (a restart, SCRIPT FLUSH): a NOSCRIPT ran nothing.
func (c Call) On(ctx context.Context, rdb redis.UniversalClient) *redis.Cmd {
	return c.Script.Run(ctx, rdb, c.Keys, c.Args...)
}

// Store is one tenant's keys on a connection to Redis.
type Store struct {
	RDB   redis.UniversalClient
	Keys  Keys
	Clock string        // replaces Redis's clock in scripts; only tests set it
	Poll  time.Duration // PollInterval; only tests set another

	// The listeners' name, see queue.Config, how long their leases last, and the connection that renews these.
	Name  string
	Lease time.Duration
	Beats redis.UniversalClient
}

// PollInterval is how often idle listeners and waiters look by themselves: Python clients announce nothing.
const PollInterval = 5 * time.Second

// Time is Redis's time, by which leases, delays and ages are measured.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	now, err := s.RDB.Time(ctx).Result()
	return now, Wrap("read Redis's clock", err)
}

// Now is the time by which the scripts work.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if s.Clock != "" {
		return ParseSeconds(s.Clock), nil
	}
	return s.Time(ctx)
}

// Eval runs one script.
func (s *Store) Eval(ctx context.Context, one Call) (any, error) { return one.On(ctx, s.RDB).Result() }

// EvalAll runs the calls, PageTasks in one round trip. Each answer has its own error.
func (s *Store) EvalAll(ctx context.Context, calls []Call) (cmds []*redis.Cmd) {
	for page := range slices.Chunk(calls, PageTasks) {
		answers, _, _ := s.EvalReplicated(ctx, page, 0, 0)
		cmds = append(cmds, answers...)
	}
	return cmds
}

// EvalReplicated runs the calls in one round trip, and in another one those whose script Redis had forgotten. It never uses MULTI:
// there a forgotten script would fail all of them. Each answer has its own error. Then, if replicas is not 0, it waits for as
// many on the same connection: Redis counts them for its writes. It returns how many have them, or in waited why that is not
// known.
func (s *Store) EvalReplicated(ctx context.Context, calls []Call, replicas int, timeout time.Duration) (cmds []*redis.Cmd, got int, waited error) {
	cmds = make([]*redis.Cmd, len(calls))
	var wait *redis.Cmd
	forgotten := func(cmd *redis.Cmd) bool { return cmd == nil || redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }
	for _, again := range []bool{false, true} {
		full := make(map[string]bool) // the scripts that are sent in full: once each is enough
		_, _ = s.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, one := range calls {
				if send := one.Script.EvalSha; forgotten(cmds[i]) {
					if again && !full[one.Script.Hash()] {
						send, full[one.Script.Hash()] = one.Script.Eval, true
					}
					cmds[i] = send(ctx, p, one.Keys, one.Args...)
				}
			}
			if replicas > 0 {
				wait = p.Do(ctx, "WAIT", replicas, timeout.Milliseconds())
			}
			return nil
		})
		if !slices.ContainsFunc(cmds, forgotten) {
			break
		}
	}
	if wait != nil {
		got, waited = int(AsInt(wait.Val())), wait.Err()
	}
	return cmds, got, waited
}

// PageTasks is how many items one pipeline reads.
const PageTasks = 1000

// Pipelined reads something of each item, PageTasks in one round trip. A command that Redis refused, such as one on a key
// of another type, has its own error and fails no other.
func Pipelined[T, C any](ctx context.Context, s *Store, items []T, read func(p redis.Pipeliner, item T) C) ([]C, error) {
	return PipelinedBy(ctx, s, PageTasks, items, read)
}

// LargeItems is how many items one pipeline reads that may have 256 KiB each.
const LargeItems = 100

// PipelinedBy is Pipelined with so many items in one round trip.
func PipelinedBy[T, C any](ctx context.Context, s *Store, page int, items []T, read func(p redis.Pipeliner, item T) C) ([]C, error) {
	cmds := make([]C, 0, len(items))
	for page := range slices.Chunk(items, page) {
		_, err := s.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, item := range page {
				cmds = append(cmds, read(p, item))
			}
			return nil
		})
		if err = PassReplies(err); err != nil {
			return nil, err
		}
	}
	return cmds, nil
}

// Existing returns the pages of PageTasks items of which at least one key exists.
func Existing[T any](ctx context.Context, s *Store, items []T, key func(item T) string) (some []T, err error) {
	pages := slices.Collect(slices.Chunk(items, PageTasks))
	found, err := Pipelined(ctx, s, pages, func(p redis.Pipeliner, page []T) *redis.IntCmd {
		keys := make([]string, len(page))
		for i, item := range page {
			keys[i] = key(item)
		}
		return p.Exists(ctx, keys...)
	})
	for i, page := range found {
		if err = cmp.Or(err, page.Err()); page.Val() > 0 {
			some = append(some, pages[i]...)
		}
	}
	return some, err
}

// MaxPage is the most tasks of one page.
const MaxPage = PageTasks

// SummaryFields are the fields of a task in a list: without parameters and result.
var SummaryFields = []string{
	"queue", "status", "error", "reason", "last_error", "node", "pid", "run", "attempts", "max_attempts",
	"crashes", "reschedules", "rejects", "retry", "max_age", "timeout", "deadline", "expires", "retried_at", "cancel",
	"dead_id", "dead_queue", "dead_error", "handled", "priority", "created", "updated", "eta", "reserved_at", "started_at", "plugin",
	"digest", "version", "progress", "message", "key", "labels", "parent", "depth", "traceparent", "headers", "live_id",
	"checkpoint", "after",
}

// advanceTasks is how many dependents one script tells: each takes some 20 commands.
const advanceTasks = 30

// Advance tells a block of dependents what became of the tasks that they wait for.
func (s *Store) Advance(ctx context.Context) (any, error) {
	return s.Eval(ctx, NewCall("advance", s.Keys.Ended(), s.Clock, advanceTasks))
}

// AdvanceAll tells all dependents.
func (s *Store) AdvanceAll(ctx context.Context) error {
	for {
		reply, err := s.Advance(ctx)
		v := ValuesOf(reply)
		v.Next() // how many it told
		if more := v.Flag(); err != nil || !more {
			return Wrap("advance dependents", cmp.Or(err, v.Err()))
		}
	}
}

// Condemn ends a lease in the way that condemn.lua describes; false if it runs.
func (s *Store) Condemn(ctx context.Context, listener string, args ...any) (bool, error) {
	answer, err := s.Eval(ctx, NewCall("condemn", s.Keys.Nodes(), append([]any{s.Clock, listener}, args...)...))
	return answer == "ok", err
}

// Retire forgets a condemned listener without tasks; dead is "1", or "" if it left by itself.
func (s *Store) Retire(ctx context.Context, listener, dead string) error {
	_, err := s.Eval(ctx, NewCall("retire", s.Keys.Nodes(), listener, dead))
	return Wrap("forget listener "+listener, err)
}

// MaxLease is the longest lease.
const MaxLease = time.Hour

// MaxQueuesField is the field of NS_limits with the most queues of the tenant; no queue has this name.
const MaxQueuesField = "."

// MaxQueues is how many queues the tenant may have; 0: any number.
func (s *Store) MaxQueues(ctx context.Context) (int, error) {
	most, err := s.RDB.HGet(ctx, s.Keys.Limits(), MaxQueuesField).Result()
	if IsNil(err) {
		return 0, nil
	}
	return int(AsInt(most)), Wrap("read bound of queues", err)
}

// BlockTasks bounds what one script call writes: some 500 commands, less than 5 ms of Redis's time.
const BlockTasks = 48

// ScheduleIDs are those of all schedules, at most one more than most, sorted.
func (s *Store) ScheduleIDs(ctx context.Context, most int64) ([]string, error) {
	ids, err := s.RDB.ZRange(ctx, s.Keys.Ticks(), 0, most).Result()
	slices.Sort(ids)
	return ids, Wrap("list schedules", err)
}

// QueuePage reads at most that many queues with a valid name and the number of their listeners, from a place on: those with fewer
// listeners come first. next is where the page behind it begins, 0 if there is none.
func (s *Store) QueuePage(ctx context.Context, from, most int64, valid func(name string) error) (queues map[string]int64, next int64, err error) {
	to := int64(-1)
	if most < math.MaxInt64-from {
		to = from + most - 1
	}
	scored, err := s.RDB.ZRangeWithScores(ctx, s.Keys.Queues(), from, to).Result()
	queues = make(map[string]int64, len(scored))
	for _, z := range scored {
		if name, ok := z.Member.(string); ok && valid(name) == nil {
			queues[name] = int64(z.Score)
		}
	}
	if int64(len(scored)) == most {
		next = from + most
	}
	return queues, next, Wrap("list queues in "+s.Keys.Queues(), err)
}
