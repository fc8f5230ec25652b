package store

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/seal"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// Script is a Lua script with its source.
type Script struct {
	*redis.Script
	Source string
}

// AllScripts contains the scripts of the folder scripts, by name. Each script is one transition, atomic in Redis.
// Its file documents its KEYS, ARGV and RETURNS. In a Script's Source, the file's text is preceded by the names of
// keys and the functions of prelude.lua and batch.lua that it uses.
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
	names  map[string]bool // the names that Text declares
	common map[string]bool // the words in Text, except those in the bodies of rare functions
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

// rareFunction matches a function that few calls of a script need. Its groups are the first line, which ends in
// rareMark, and the rest.
var rareFunction = regexp.MustCompile(`(?ms)^(local function [^\n]*` + rareMark + `)(.*?^end\n)`)

const rareMark = " -- rare\n"

// WithUsed returns a script, preceded by the declarations of the library that it uses, in the library's order.
// Redis executes all declarations of a script in each call, and the whole library would take longer than many
// transitions. A declaration that only a rare function uses is put inside that function. It is then executed each
// time the function runs, so it must hold no state.
func WithUsed(library []Declaration, script string) string {
	above := make(map[string]bool) // the names that are declared before the script
	return inRare(library, using(library, NewDeclaration(script).common, above)+script, above)
}

// inRare puts, into each rare function of text, the declarations that the function uses. It leaves out those whose
// names are in above.
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

// using returns the declarations that the words in used refer to, directly or through other declarations. It
// leaves out those whose names are in above, and adds the names of the returned ones to above.
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

// Call is a script with its arguments. A round trip can send one or several calls.
type Call struct {
	Script Script
	Keys   []string
	Args   []any
}

// NewCall makes a call, with one key, of the script with this name.
func NewCall(script, key string, args ...any) Call {
	return Call{AllScripts[script], []string{key}, args}
}

// Named appends names of queues or IDs of tasks to the arguments of a script.
func Named(names []string, args ...any) []any {
	for _, name := range names {
		args = append(args, name)
	}
	return args
}

// On runs the script by its hash. If Redis does not know the script (after a restart or SCRIPT FLUSH), nothing was
// executed, and On sends the source.
func (c Call) On(ctx context.Context, rdb redis.UniversalClient) *redis.Cmd {
	return c.Script.Run(ctx, rdb, c.keys(), c.Args...)
}

// keys returns the keys that the call declares. For a tenant in braces, a key that never exists is the last one. It
// makes a Cluster refuse the script while the tenant's slot is moved to another server: otherwise the script would find
// only some of the keys that it does not declare.
func (c Call) keys() []string {
	if tenant, _, _ := strings.Cut(c.Keys[0], "_"); strings.HasPrefix(tenant, "{") {
		return append(slices.Clip(c.Keys), Keys{tenant}.Task("")) // no task has an empty ID
	}
	return c.Keys
}

// Store gives access to one tenant's keys on a connection to Redis.
type Store struct {
	RDB   redis.UniversalClient
	Keys  Keys
	Clock string        // replaces Redis's clock in scripts; only tests set it
	Poll  time.Duration // PollInterval; only tests set another value
	Seal  *seal.Ring    // the keys of the tenant's payloads; nil if they are not encrypted

	Name  string                // first part of the listeners' IDs: see queue.Config
	Lease time.Duration         // length of the listeners' leases
	Beats redis.UniversalClient // the connection that renews the leases

	pool redis.UniversalClient // that of all tenants; it differs from RDB if it is a Cluster
}

// PollInterval is the interval at which idle listeners and waiters poll, because Python clients announce nothing.
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

// EvalAll runs calls, PageTasks per round trip. Each result has its own error.
func (s *Store) EvalAll(ctx context.Context, calls []Call) (cmds []*redis.Cmd) {
	for page := range slices.Chunk(calls, PageTasks) {
		answers, _, _ := s.EvalReplicated(ctx, page, 0, 0)
		cmds = append(cmds, answers...)
	}
	return cmds
}

// EvalReplicated runs calls in one round trip. Calls whose script Redis did not know are sent again, with the
// source, in a second round trip. It never uses MULTI, in which an unknown script would fail all calls. Each
// result has its own error. If replicas is above 0, it then waits on the same connection until that many replicas
// have the writes, at most for timeout. got is the number of replicas that have them. waited is the error if that
// number is unknown.
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
					cmds[i] = send(ctx, p, one.keys(), one.Args...)
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

// PageTasks is the maximum number of items that one pipeline reads.
const PageTasks = 1000

// Pipelined calls read for each item to queue a command, and sends the commands of PageTasks items in one round trip.
// If Redis refuses a command, for example because a key has the wrong type, only this command has an error.
func Pipelined[T, C any](ctx context.Context, s *Store, items []T,
	read func(p redis.Pipeliner, item T) C,
) ([]C, error) {
	return PipelinedBy(ctx, s, PageTasks, items, read)
}

// LargeItems is the maximum number of items that one pipeline reads if each can have 256 KiB.
const LargeItems = 100

// PipelinedBy is Pipelined with pageSize items per round trip.
func PipelinedBy[T, C any](ctx context.Context, s *Store, pageSize int, items []T,
	read func(p redis.Pipeliner, item T) C,
) ([]C, error) {
	cmds := make([]C, 0, len(items))
	for page := range slices.Chunk(items, pageSize) {
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

// Existing reduces items to those whose key may exist. It checks pages of PageTasks items, and returns all items of
// each page in which at least one key exists.
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

// MaxPage is the maximum number of tasks in one page of a list.
const MaxPage = PageTasks

// SummaryFields are the fields of a task's hash that a summary contains. Parameters and result are not among them.
var SummaryFields = []string{
	"queue", "status", "error", "reason", "last_error", "node", "pid", "run", "attempts", "max_attempts",
	"crashes", "reschedules", "rejects", "retry", "max_age", "timeout", "deadline", "expires", "retried_at", "cancel",
	"dead_id", "dead_queue", "dead_error", "handled", "priority", "created", "updated", "eta", "reserved_at", "started_at",
	"plugin", "digest", "version", "release", "progress", "message", "key", "labels", "parent", "depth", "traceparent",
	"headers", "live_id", "checkpoint", "after", "record", "fair", "lane", "line", "held",
}

// advanceTasks is the maximum number of dependents that one call of advance.lua handles. Each takes some 20 commands.
const advanceTasks = 30

// Advance reports the ends of tasks to one block of their dependents. It returns the reply of advance.lua.
func (s *Store) Advance(ctx context.Context) (any, error) {
	return s.Eval(ctx, NewCall("advance", s.Keys.Ended(), s.Clock, advanceTasks))
}

// AdvanceAll reports the ends of all ended tasks to their dependents.
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

// CheckLanes takes the places of tasks that have ended unseen from them, in all lanes of a queue in which tasks wait.
func (s *Store) CheckLanes(ctx context.Context, name string) error {
	for place, more := "", true; more; more = place != "" {
		reply, err := s.Eval(ctx, NewCall("lanes", s.Keys.Line(name), s.Clock, name, LaneChecks, place))
		v := ValuesOf(reply)
		v.Next() // number of holders that lost their place
		if place = v.Text(); err != nil || v.Err() != nil {
			return fmt.Errorf("check lanes of %q: %w", name, cmp.Or(err, v.Err()))
		}
	}
	return nil
}

// CountFinished counts finished tasks of a queue that are not counted for the quota bytes_finished, because they ended
// before the tenant had it.
func (s *Store) CountFinished(ctx context.Context, name string) error {
	for _, list := range []struct{ key, status string }{
		{s.Keys.Complete(name), "complete"}, {s.Keys.Failed(name), "failed"},
	} {
		for passed, more := "0", true; more; more = passed != "0" {
			reply, err := s.Eval(ctx, NewCall("finished", list.key, s.Clock, name, list.status, CountTasks, passed))
			if passed = AsString(reply); err != nil {
				return fmt.Errorf("count finished tasks of %q: %w", name, err)
			}
		}
	}
	return nil
}

// Condemn ends a listener's lease. args are the further arguments of condemn.lua. It returns false if the lease still
// runs.
func (s *Store) Condemn(ctx context.Context, listener string, args ...any) (bool, error) {
	answer, err := s.Eval(ctx, NewCall("condemn", s.Keys.Nodes(), append([]any{s.Clock, listener}, args...)...))
	return answer == "ok", err
}

// Retire removes a condemned listener that holds no tasks. dead is "1", or "" if the listener has left by itself.
func (s *Store) Retire(ctx context.Context, listener, dead string) error {
	_, err := s.Eval(ctx, NewCall("retire", s.Keys.Nodes(), listener, dead))
	return Wrap("forget listener "+listener, err)
}

// MaxLease is the maximum length of a lease.
const MaxLease = time.Hour

// MaxQueuesField is the field of NS_limits that contains the tenant's maximum number of queues. No queue can have
// this name.
const MaxQueuesField = "."

// MarksField is the field of NS_limits that says what scripts must look at: letters, one for each kind of thing. "p":
// pauses of accepting; "e": quotas of enqueueing; "r": quotas of reserving. It is missing if there is nothing. No queue
// can have this name.
const MarksField = ".."

// MaxQueues reads the tenant's maximum number of queues; 0 means that there is no limit.
func (s *Store) MaxQueues(ctx context.Context) (int, error) {
	most, err := s.RDB.HGet(ctx, s.Keys.Limits(), MaxQueuesField).Result()
	if IsNil(err) {
		return 0, nil
	}
	return int(AsInt(most)), Wrap("read bound of queues", err)
}

// BlockTasks is the maximum number of tasks that one script call writes. That takes some 500 commands, and less
// than 5 ms of Redis's time.
const BlockTasks = 48

// ScheduleIDs lists the IDs of the tenant's schedules, sorted. If there are more than limit, it returns limit+1 of
// them.
func (s *Store) ScheduleIDs(ctx context.Context, limit int64) ([]string, error) {
	ids, err := s.RDB.ZRange(ctx, s.Keys.Ticks(), 0, limit).Result()
	slices.Sort(ids)
	return ids, Wrap("list schedules", err)
}

// QueuePage reads up to limit queues with the number of listeners of each. The argument first is the index of the
// first queue to read. Queues with fewer listeners come before others. Queues with an invalid name are left out. The
// result next is the index at which the next page begins, or 0 if this page is the last one.
func (s *Store) QueuePage(ctx context.Context, first, limit int64,
	valid func(name string) error,
) (queues map[string]int64, next int64, err error) {
	to := int64(-1)
	if limit < math.MaxInt64-first {
		to = first + limit - 1
	}
	scored, err := s.RDB.ZRangeWithScores(ctx, s.Keys.Queues(), first, to).Result()
	queues = make(map[string]int64, len(scored))
	for _, z := range scored {
		if name, ok := z.Member.(string); ok && valid(name) == nil {
			queues[name] = int64(z.Score)
		}
	}
	if int64(len(scored)) == limit {
		next = first + limit
	}
	return queues, next, Wrap("list queues in "+s.Keys.Queues(), err)
}
