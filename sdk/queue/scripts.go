package queue

import (
	"cmp"
	"context"
	"embed"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is a Lua script with its source.
type script struct {
	*redis.Script
	source string
}

// allScripts are the files of the folder scripts, by name. Each is one transition, atomic in Redis; the file lists its KEYS, ARGV
// and RETURNS. The keys' names and what it uses of prelude.lua and batch.lua precede each.
var allScripts = func() map[string]script {
	read := func(name string) string {
		text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		return string(text)
	}
	var library []declaration
	for line := range strings.Lines(luaNames) {
		library = append(library, newDeclaration(line))
	}
	for paragraph := range strings.SplitSeq(read("prelude")+"\n"+read("batch"), "\n\n") {
		library = append(library, newDeclaration(strings.TrimSuffix(paragraph, "\n")+"\n\n"))
	}
	all := make(map[string]script)
	files, _ := scriptFiles.ReadDir("scripts")
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".lua")
		if name == "prelude" || name == "batch" {
			continue
		}
		source := withUsed(library, read(name))
		all[name] = script{redis.NewScript(source), source}
	}
	return all
}()

// declaration is a part of the Lua code that scripts share: the names that it declares, and the words in it outside of rare
// functions.
type declaration struct {
	text   string
	names  map[string]bool
	common map[string]bool
}

func newDeclaration(text string) declaration {
	d := declaration{text: text, names: make(map[string]bool), common: wordsOf(rareFunction.ReplaceAllString(text, "$1"))}
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

// withUsed puts before a script what it uses of the library, in its order: Redis runs all of a script's declarations in each
// call, and with all of the library they would take longer than many a transition. What only a rare function uses is made when
// that runs, so that it must hold no state.
func withUsed(library []declaration, script string) string {
	above := make(map[string]bool) // the names that are declared before the script
	return inRare(library, using(library, newDeclaration(script).common, above)+script, above)
}

// inRare puts into each rare function of a text what it uses of the library, except what is above.
func inRare(library []declaration, text string, above map[string]bool) string {
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
func using(library []declaration, used, above map[string]bool) (text string) {
	for _, d := range slices.Backward(library) { // a declaration uses only earlier ones
		for name := range d.names {
			if used[name] && !above[name] {
				text = d.text + text
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

// call is a script with its arguments, sent alone or with others in one round trip.
type call struct {
	script script
	keys   []string
	args   []any
}

// newCall calls the script of that name with one key.
func newCall(script, key string, args ...any) call {
	return call{allScripts[script], []string{key}, args}
}

// named are the arguments of a script for many queues or tasks, which follow the others.
func named(names []string, args ...any) []any {
	for _, name := range names {
		args = append(args, name)
	}
	return args
}

// on runs the script; in full if Redis has forgotten it (a restart, SCRIPT FLUSH): a NOSCRIPT ran nothing.
func (c call) on(ctx context.Context, rdb redis.UniversalClient) *redis.Cmd {
	return c.script.Run(ctx, rdb, c.keys, c.args...)
}

// store is one tenant's keys on a connection to Redis.
type store struct {
	rdb   redis.UniversalClient
	keys  keys
	clock string        // replaces Redis's clock in scripts; only tests set it
	poll  time.Duration // pollInterval; only tests set another

	// The listeners' name, see queue.Config, how long their leases last, and the connection that renews these.
	name  string
	lease time.Duration
	beats redis.UniversalClient
}

// pollInterval is how often idle listeners and waiters look by themselves: Python clients announce nothing.
const pollInterval = 5 * time.Second

// time is Redis's time, by which leases, delays and ages are measured.
func (s *store) time(ctx context.Context) (time.Time, error) {
	now, err := s.rdb.Time(ctx).Result()
	return now, wrap("read Redis's clock", err)
}

// now is the time by which the scripts work.
func (s *store) now(ctx context.Context) (time.Time, error) {
	if s.clock != "" {
		return parseSeconds(s.clock), nil
	}
	return s.time(ctx)
}

// eval runs one script.
func (s *store) eval(ctx context.Context, one call) (any, error) { return one.on(ctx, s.rdb).Result() }

// evalAll runs the calls, pageTasks in one round trip. Each answer has its own error.
func (s *store) evalAll(ctx context.Context, calls []call) (cmds []*redis.Cmd) {
	for page := range slices.Chunk(calls, pageTasks) {
		answers, _, _ := s.evalReplicated(ctx, page, 0, 0)
		cmds = append(cmds, answers...)
	}
	return cmds
}

// evalReplicated runs the calls in one round trip, and in another one those whose script Redis had forgotten. It never uses MULTI:
// there a forgotten script would fail all of them. Each answer has its own error. Then, if replicas is not 0, it waits for as
// many on the same connection: Redis counts them for its writes. It returns how many have them, or in waited why that is not
// known.
func (s *store) evalReplicated(ctx context.Context, calls []call, replicas int, timeout time.Duration) (cmds []*redis.Cmd, got int, waited error) {
	cmds = make([]*redis.Cmd, len(calls))
	var wait *redis.Cmd
	forgotten := func(cmd *redis.Cmd) bool { return cmd == nil || redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }
	for _, again := range []bool{false, true} {
		full := make(map[string]bool) // the scripts that are sent in full: once each is enough
		_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, one := range calls {
				if send := one.script.EvalSha; forgotten(cmds[i]) {
					if again && !full[one.script.Hash()] {
						send, full[one.script.Hash()] = one.script.Eval, true
					}
					cmds[i] = send(ctx, p, one.keys, one.args...)
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
		got, waited = int(asInt(wait.Val())), wait.Err()
	}
	return cmds, got, waited
}

// pageTasks is how many items one pipeline reads.
const pageTasks = 1000

// pipelined reads something of each item, pageTasks in one round trip. A command that Redis refused, such as one on a key
// of another type, has its own error and fails no other.
func pipelined[T, C any](ctx context.Context, s *store, items []T, read func(p redis.Pipeliner, item T) C) ([]C, error) {
	return pipelinedBy(ctx, s, pageTasks, items, read)
}

// largeItems is how many items one pipeline reads that may have 256 KiB each.
const largeItems = 100

// pipelinedBy is pipelined with so many items in one round trip.
func pipelinedBy[T, C any](ctx context.Context, s *store, page int, items []T, read func(p redis.Pipeliner, item T) C) ([]C, error) {
	cmds := make([]C, 0, len(items))
	for page := range slices.Chunk(items, page) {
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, item := range page {
				cmds = append(cmds, read(p, item))
			}
			return nil
		})
		if err = passReplies(err); err != nil {
			return nil, err
		}
	}
	return cmds, nil
}

// existing returns the pages of pageTasks items of which at least one key exists.
func existing[T any](ctx context.Context, s *store, items []T, key func(item T) string) (some []T, err error) {
	pages := slices.Collect(slices.Chunk(items, pageTasks))
	found, err := pipelined(ctx, s, pages, func(p redis.Pipeliner, page []T) *redis.IntCmd {
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

// maxPage is the most tasks of one page.
const maxPage = pageTasks

// summaryFields are the fields of a task in a list: without parameters and result.
var summaryFields = []string{
	"queue", "status", "error", "reason", "last_error", "node", "pid", "run", "attempts", "max_attempts",
	"crashes", "reschedules", "rejects", "retry", "max_age", "timeout", "deadline", "expires", "retried_at", "cancel",
	"dead_id", "dead_queue", "dead_error", "handled", "priority", "created", "updated", "eta", "reserved_at", "started_at", "plugin",
	"digest", "version", "progress", "message", "key", "labels", "parent", "depth", "traceparent", "headers", "live_id",
	"checkpoint", "after",
}

// advanceTasks is how many dependents one script tells: each takes some 20 commands.
const advanceTasks = 30

// advance tells a block of dependents what became of the tasks that they wait for.
func (s *store) advance(ctx context.Context) (any, error) {
	return s.eval(ctx, newCall("advance", s.keys.ended(), s.clock, advanceTasks))
}

// advanceAll tells all dependents.
func (s *store) advanceAll(ctx context.Context) error {
	for {
		reply, err := s.advance(ctx)
		v := valuesOf(reply)
		v.next() // how many it told
		if more := v.flag(); err != nil || !more {
			return wrap("advance dependents", cmp.Or(err, v.err()))
		}
	}
}

// condemn ends a lease in the way that condemn.lua describes; false if it runs.
func (s *store) condemn(ctx context.Context, listener string, args ...any) (bool, error) {
	answer, err := s.eval(ctx, newCall("condemn", s.keys.nodes(), append([]any{s.clock, listener}, args...)...))
	return answer == "ok", err
}

// retire forgets a condemned listener without tasks; dead is "1", or "" if it left by itself.
func (s *store) retire(ctx context.Context, listener, dead string) error {
	_, err := s.eval(ctx, newCall("retire", s.keys.nodes(), listener, dead))
	return wrap("forget listener "+listener, err)
}

// maxLease is the longest lease.
const maxLease = time.Hour

// maxQueuesField is the field of NS_limits with the most queues of the tenant; no queue has this name.
const maxQueuesField = "."

// maxQueues is how many queues the tenant may have; 0: any number.
func (s *store) maxQueues(ctx context.Context) (int, error) {
	most, err := s.rdb.HGet(ctx, s.keys.limits(), maxQueuesField).Result()
	if isNil(err) {
		return 0, nil
	}
	return int(asInt(most)), wrap("read bound of queues", err)
}

// blockTasks bounds what one script call writes: some 500 commands, less than 5 ms of Redis's time.
const blockTasks = 48

// scheduleIDs are those of all schedules, at most one more than most, sorted.
func (s *store) scheduleIDs(ctx context.Context, most int64) ([]string, error) {
	ids, err := s.rdb.ZRange(ctx, s.keys.ticks(), 0, most).Result()
	slices.Sort(ids)
	return ids, wrap("list schedules", err)
}
