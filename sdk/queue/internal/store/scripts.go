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

// AllScripts are the scripts of the folder scripts, by name. Each script is one transition, atomic in Redis. Its file
// documents its KEYS, ARGV and RETURNS. The source has, in front of the file's text, the names of keys and the
// functions of prelude.lua and batch.lua that the script uses.
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

// Declaration is a paragraph of the Lua code that scripts share.
type Declaration struct {
	Text   string
	names  map[string]bool // the names that it declares
	common map[string]bool // the words in it outside of rare functions
}

// NewDeclaration parses a paragraph of prelude.lua or batch.lua, or a line of luaNames.
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

// rareFunction matches a function that few calls of a script need: its first line, which ends in rareMark, and the
// rest.
var rareFunction = regexp.MustCompile(`(?ms)^(local function [^\n]*` + rareMark + `)(.*?^end\n)`)

const rareMark = " -- rare\n"

// WithUsed returns a script with the declarations of the library that it uses in front, in the library's order. In each
// call, Redis executes all declarations of a script: the whole library would take longer than many transitions. A
// declaration that only a rare function uses is put inside that function. So it is executed each time the function
// runs, and must hold no state.
func WithUsed(library []Declaration, script string) string {
	above := make(map[string]bool) // the names that are declared before the script
	return inRare(library, using(library, NewDeclaration(script).common, above)+script, above)
}

// inRare puts, into each rare function of a text, the declarations that the function uses, except those named in above.
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

// using returns the declarations that the words in used refer to, directly or through other declarations, except those
// named in above. It adds their names to above.
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

// wordsOf returns the set of words in a Lua text, without comments.
func wordsOf(text string) map[string]bool {
	words := make(map[string]bool)
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		for _, word := range strings.FieldsFunc(line, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) &&
				!unicode.IsDigit(r)
		}) {
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

// NewCall makes a call of a script, by its name, with one key.
func NewCall(script, key string, args ...any) Call {
	return Call{AllScripts[script], []string{key}, args}
}

// Named appends names, of queues or tasks, to the arguments of a script.
func Named(names []string, args ...any) []any {
	for _, name := range names {
		args = append(args, name)
	}
	return args
}

// On runs the script by its hash. If Redis does not know the script (after a restart or SCRIPT FLUSH), nothing was
// executed, and On sends the source.
func (c Call) On(ctx context.Context, rdb redis.UniversalClient) *redis.Cmd {
	return c.Script.Run(ctx, rdb, c.Keys, c.Args...)
}

// Store is one tenant's keys on a connection to Redis.
type Store struct {
	RDB   redis.UniversalClient
	Keys  Keys
	Clock string        // replaces Redis's clock in scripts; only tests set it
	Poll  time.Duration // PollInterval; only tests set another value

	Name  string                // first part of the listeners' IDs: see queue.Config
	Lease time.Duration         // length of the listeners' leases
	Beats redis.UniversalClient // the connection that renews the leases
}

// PollInterval is how often idle listeners and waiters poll: Python clients announce nothing.
const PollInterval = 5 * time.Second

// Time reads Redis's time, by which leases, delays and ages are measured.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	now, err := s.RDB.Time(ctx).Result()
	return now, Wrap("read Redis's clock", err)
}

// Now returns the time that the scripts use: Clock if it is set, else Redis's time.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if s.Clock != "" {
		return ParseSeconds(s.Clock), nil
	}
	return s.Time(ctx)
}

// Eval runs one script.
func (s *Store) Eval(ctx context.Context, one Call) (any, error) { return one.On(ctx, s.RDB).Result() }

// EvalAll runs calls, PageTasks in one round trip. Each result has its own error.
func (s *Store) EvalAll(ctx context.Context, calls []Call) (cmds []*redis.Cmd) {
	for page := range slices.Chunk(calls, PageTasks) {
		answers, _, _ := s.EvalReplicated(ctx, page, 0, 0)
		cmds = append(cmds, answers...)
	}
	return cmds
}

// EvalReplicated runs calls in one round trip. Calls whose script Redis did not know are sent again, with the source,
// in a second one. It never uses MULTI, in which an unknown script would fail all calls. Each result has its own error.
// If replicas is not 0, it then waits, on the same connection, until as many replicas have these writes. got is the
// number of replicas that have them; waited is the error if that number is not known.
func (s *Store) EvalReplicated(ctx context.Context, calls []Call, replicas int,
	timeout time.Duration,
) (cmds []*redis.Cmd, got int, waited error) {
	cmds = make([]*redis.Cmd, len(calls))
	var wait *redis.Cmd
	forgotten := func(cmd *redis.Cmd) bool { return cmd == nil || redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }
	for _, again := range []bool{false, true} {
		full := make(map[string]bool) // scripts whose source is sent in this round trip: once is enough
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

// PageTasks is the most items that one pipeline reads.
const PageTasks = 1000

// Pipelined calls read for each item to queue a command, and sends the commands of PageTasks items in one round trip.
// If Redis refuses a command, for example because a key has the wrong type, only this command has an error.
func Pipelined[T, C any](ctx context.Context, s *Store, items []T,
	read func(p redis.Pipeliner, item T) C,
) ([]C, error) {
	return PipelinedBy(ctx, s, PageTasks, items, read)
}

// LargeItems is the most items that one pipeline reads if each may have 256 KiB.
const LargeItems = 100

// PipelinedBy is Pipelined with `page` items in one round trip.
func PipelinedBy[T, C any](ctx context.Context, s *Store, page int, items []T,
	read func(p redis.Pipeliner, item T) C,
) ([]C, error) {
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

// Existing checks items in pages of PageTasks. It returns the items of all pages with at least one existing key.
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

// MaxPage is the most tasks in one page of a list.
const MaxPage = PageTasks

// SummaryFields are the fields of a task's hash that a summary has: not parameters and result.
var SummaryFields = []string{
	"queue", "status", "error", "reason", "last_error", "node", "pid", "run", "attempts", "max_attempts",
	"crashes", "reschedules", "rejects", "retry", "max_age", "timeout", "deadline", "expires", "retried_at", "cancel",
	"dead_id", "dead_queue", "dead_error", "handled", "priority", "created", "updated", "eta", "reserved_at", "started_at",
	"plugin",
	"digest", "version", "progress", "message", "key", "labels", "parent", "depth", "traceparent", "headers", "live_id",
	"checkpoint", "after",
}

// advanceTasks is the most dependents that one call of advance.lua handles: each takes some 20 commands.
const advanceTasks = 30

// Advance reports ended tasks to one block of their dependents.
func (s *Store) Advance(ctx context.Context) (any, error) {
	return s.Eval(ctx, NewCall("advance", s.Keys.Ended(), s.Clock, advanceTasks))
}

// AdvanceAll reports all ended tasks to their dependents.
func (s *Store) AdvanceAll(ctx context.Context) error {
	for {
		reply, err := s.Advance(ctx)
		v := ValuesOf(reply)
		v.Next() // number of dependents looked at
		if more := v.Flag(); err != nil || !more {
			return Wrap("advance dependents", cmp.Or(err, v.Err()))
		}
	}
}

// Condemn ends a listener's lease as condemn.lua describes. It returns false if the lease still runs.
func (s *Store) Condemn(ctx context.Context, listener string, args ...any) (bool, error) {
	answer, err := s.Eval(ctx, NewCall("condemn", s.Keys.Nodes(), append([]any{s.Clock, listener}, args...)...))
	return answer == "ok", err
}

// Retire removes a condemned listener that holds no tasks. dead is "1", or "" if the listener has left by itself.
func (s *Store) Retire(ctx context.Context, listener, dead string) error {
	_, err := s.Eval(ctx, NewCall("retire", s.Keys.Nodes(), listener, dead))
	return Wrap("forget listener "+listener, err)
}

// MaxLease is the longest lease.
const MaxLease = time.Hour

// MaxQueuesField is the field of NS_limits for the number of queues that the tenant may have. No queue can have this
// name.
const MaxQueuesField = "."

// MaxQueues reads how many queues the tenant may have; 0 means any number.
func (s *Store) MaxQueues(ctx context.Context) (int, error) {
	most, err := s.RDB.HGet(ctx, s.Keys.Limits(), MaxQueuesField).Result()
	if IsNil(err) {
		return 0, nil
	}
	return int(AsInt(most)), Wrap("read bound of queues", err)
}

// BlockTasks is the most tasks that one script call writes: some 500 commands, less than 5 ms of Redis's time.
const BlockTasks = 48

// ScheduleIDs lists the IDs of all schedules, sorted. If there are more than `most`, it returns most+1 IDs.
func (s *Store) ScheduleIDs(ctx context.Context, most int64) ([]string, error) {
	ids, err := s.RDB.ZRange(ctx, s.Keys.Ticks(), 0, most).Result()
	slices.Sort(ids)
	return ids, Wrap("list schedules", err)
}

// QueuePage reads a page of up to `most` queues, from index `from` on, with the number of listeners of each. Queues
// with fewer listeners come first. Queues with an invalid name are left out. next is the index of the next page, or 0
// if this page is the last one.
func (s *Store) QueuePage(ctx context.Context, from, most int64,
	valid func(name string) error,
) (queues map[string]int64, next int64, err error) {
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
