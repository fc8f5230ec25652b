package store

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Keys builds the name of every key of a tenant. No other code in this module builds one, and no code parses a name out
// of a key.
type Keys struct{ Tenant string }

func (k Keys) Key(subject ...string) string { return k.Tenant + "_" + strings.Join(subject, "_") }

func (k Keys) Queues() string                     { return k.Key("queues") }
func (k Keys) Pending(queue string) string        { return k.Key("pending_tasks", queue) }
func (k Keys) Reserved(queue, node string) string { return k.Key("reserved_tasks", queue, node) }
func (k Keys) Started(queue string) string        { return k.Key("started_tasks", queue) }
func (k Keys) Complete(queue string) string       { return k.Key("complete_tasks", queue) }
func (k Keys) Failed(queue string) string         { return k.Key("failed_tasks", queue) }
func (k Keys) Scheduled(queue string) string      { return k.Key("scheduled_tasks", queue) }
func (k Keys) Listeners(queue string) string      { return k.Key("listeners", queue) }
func (k Keys) Task(id string) string              { return k.Key("task", id) }

func (k Keys) Channel(queue string) string  { return k.Key("channel", queue) }
func (k Keys) Done(id string) string        { return k.Key("done", id) }
func (k Keys) Waiters() string              { return k.Key("waiters") }
func (k Keys) Nodes() string                { return k.Key("nodes") }
func (k Keys) Node(listener string) string  { return k.Key("node", listener) }
func (k Keys) Index(queue string) string    { return k.Key("tasks", queue) }
func (k Keys) Sample() string               { return k.Key("sample") }
func (k Keys) Paused() string               { return k.Key("paused") }
func (k Keys) Pauses() string               { return k.Key("pauses") }
func (k Keys) Usage(number string) string   { return k.Key("usage", number) }
func (k Keys) Bytes(id string) string       { return k.Key("bytes", id) }
func (k Keys) Log(id string) string         { return k.Key("log", id) }
func (k Keys) Logs() string                 { return k.Key("logs") }
func (k Keys) Finished() string             { return k.Key("finished") }
func (k Keys) Attempts(id string) string    { return k.Key("attempts", id) }
func (k Keys) Stats(queue string) string    { return k.Key("stats", queue) }
func (k Keys) Purged(queue string) string   { return k.Key("purged", queue) }
func (k Keys) Duty(name string) string      { return k.Key("duty", name) }
func (k Keys) Version() string              { return k.Key("version") }
func (k Keys) Control() string              { return k.Key("control") }
func (k Keys) Limits() string               { return k.Key("limits") }
func (k Keys) Quotas() string               { return k.Key("quotas") }
func (k Keys) Used() string                 { return k.Key("used") }
func (k Keys) Throttled() string            { return k.Key("throttled") }
func (k Keys) Buckets() string              { return k.Key("kvs") }
func (k Keys) KeyRates(queue string) string { return k.Key("keyrates", queue) }
func (k Keys) Held(queue string) string     { return k.Key("held", queue) }
func (k Keys) Crashes() string              { return k.Key("crashes") }
func (k Keys) Audit() string                { return k.Key("audit") }
func (k Keys) Once(id string) string        { return k.Key("once", id) }
func (k Keys) Relays() string               { return k.Key("relays") }
func (k Keys) Reports(name string) string   { return k.Key("reports", name) }
func (k Keys) Minute(number string) string  { return k.Key("minute", number) }
func (k Keys) Hour(number string) string    { return k.Key("hour", number) }
func (k Keys) Blocked(queue string) string  { return k.Key("blocked", queue) }
func (k Keys) After(id string) string       { return k.Key("after", id) }
func (k Keys) Children(id string) string    { return k.Key("children", id) }
func (k Keys) Ended() string                { return k.Key("ended") }
func (k Keys) Ticks() string                { return k.Key("ticks") }
func (k Keys) Schedule(id string) string    { return k.Key("schedule", id) }
func (k Keys) Jobs() string                 { return k.Key("jobs") }
func (k Keys) Job(id string) string         { return k.Key("job", id) }
func (k Keys) JobItems(id string) string    { return k.Key("job_items", id) }
func (k Keys) JobEnds(id string) string     { return k.Key("job_ends", id) }

func (k Keys) Subscriptions() string            { return k.Key("subscriptions") }
func (k Keys) Generation() string               { return k.Key("generation") }
func (k Keys) Topics() string                   { return k.Key("topics") }
func (k Keys) Topic(topic string) string        { return k.Key("topic", topic) }
func (k Keys) Publications(topic string) string { return k.Key("publications", topic) }
func (k Keys) Publishing() string               { return k.Key("publishing") }
func (k Keys) Publication(id string) string     { return k.Key("publication", id) }
func (k Keys) Published(id string) string       { return k.Key("published", id) }

func (k Keys) Releases() string           { return k.Key("releases") }
func (k Keys) Release(name string) string { return k.Key("release", name) }
func (k Keys) Trial(name string) string   { return k.Key("trial", name) }
func (k Keys) Stopped() string            { return k.Key("stopped") }
func (k Keys) Pieces() string             { return k.Key("pieces") }
func (k Keys) Piece(hash string) string   { return k.Key("piece", hash) }

func (k Keys) Records() string { return k.Key("records") }

func (k Keys) Level(priority, queue string) string { return k.Key("pending", priority, queue) }
func (k Keys) Priorities(queue string) string      { return k.Key("priorities", queue) }
func (k Keys) Fair(priority, queue string) string  { return k.Key("fair", priority, queue) }
func (k Keys) Turns(priority, queue string) string { return k.Key("turns", priority, queue) }
func (k Keys) Lanes(queue string) string           { return k.Key("lanes", queue) }
func (k Keys) Line(queue string) string            { return k.Key("line", queue) }
func (k Keys) Expiry(queue string) string          { return k.Key("expiry", queue) }
func (k Keys) Keyed(queue string) string           { return k.Key("keys", queue) }
func (k Keys) Unique(queue, hash string) string    { return k.Key("unique", queue, hash) }

// ListedChildren is the maximum length of the list of a task's children and dependents. A list of that length gets no
// more children, and no dependents that come after the task's end. Other dependents are always added.
const ListedChildren = 10_000

// luaNames declares, for the scripts, the names of the keys, and bounds that Go and the scripts share. The Lua name of
// a key is in capitals and without the tenant: PENDING_TASKS_ for NS_pending_tasks_QUEUE. A script takes its tenant,
// NS, from its first key, up to the first underscore, because a tenant's name has none.
var luaNames = func() string {
	k := Keys{} // without a tenant: every name begins with an underscore
	text := "local NS = string.match(KEYS[1], '^[^_]*')\n"
	for _, key := range []string{
		k.Queues(), k.Nodes(), k.Paused(), k.Pauses(), k.Control(), k.Limits(), k.Crashes(), k.Ended(), k.Waiters(),
		k.Pending(""), k.Reserved("", ""), k.Started(""), k.Complete(""), k.Failed(""), k.Scheduled(""),
		k.Listeners(""), k.Channel(""), k.Index(""), k.Stats(""), k.Purged(""), k.Priorities(""), k.Expiry(""), k.Keyed(""),
		k.Level("", ""), k.Fair("", ""), k.Turns("", ""), k.Lanes(""), k.Line(""), k.Unique("", ""), k.Once(""), k.Reports(""), k.Task(""), k.Bytes(""), k.Log(""), k.Attempts(""), k.Done(""), k.Duty(""),
		k.Node(""),
		k.Minute(""), k.Hour(""), k.Usage(""),
		k.Job(""), k.JobItems(""), k.JobEnds(""), k.Blocked(""), k.After(""), k.Children(""),
		k.Subscriptions(), k.Generation(), k.Topics(), k.Topic(""), k.Publications(""), k.Publishing(), k.Publication(""),
		k.Published(""),
		k.Quotas(), k.Used(), k.Throttled(), k.KeyRates(""), k.Held(""), k.Logs(), k.Finished(),
		k.Schedule(""), k.Pieces(), k.Piece(""), k.Release(""), k.Trial(""), k.Stopped(),
	} {
		key = strings.Replace(key, "__", "_", 1) // in a key with two empty parts
		text += fmt.Sprintf("local %s = NS .. '%s'\n", strings.ToUpper(key[1:]), key)
	}
	return text + fmt.Sprintf("local SEARCHED = %d\nlocal UNIQUE_LIFE = %d\nlocal LISTED_CHILDREN = %d\nlocal MOST_HELD = %d\n"+
		"local FAILURES = '%s'\n", Searched, int64(UniqueLife.Seconds()), ListedChildren, mostHeld, Failures)
}()

// Failures follows the name of a version, "PLUGIN DIGEST", in the field of Crashes that has the state of its circuit
// breaker.
const Failures = " failures"

// UniqueLife is the maximum duration of a uniqueness that lasts until its task is finished, because the task may never
// finish.
const UniqueLife = 90 * 24 * time.Hour

// mostHeld is the maximum number of keys of a queue that are held.
const mostHeld = 100_000

// Searched is the maximum length of a list that scripts search for an ID. Searching a longer one would take Redis
// milliseconds.
const Searched = 100_000

// quernListener matches the IDs of Quern's listeners. The IDs of Blueque's listeners do not match.
var quernListener = regexp.MustCompile(`~[0-9a-f]{8}_[0-9]+$`)

// IsQuernListener reports whether an ID is the ID of a Quern listener.
func IsQuernListener(id string) bool { return quernListener.MatchString(id) }
