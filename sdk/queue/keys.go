package queue

import (

	//nolint:gosec // names, no secrets

	"fmt"
	"regexp"
	"strings"
	"time"
)

// keys builds the name of every key of a tenant; nothing else in this module does, and nothing parses a name out of a key.
type keys struct{ ns string }

func (k keys) key(subject ...string) string { return k.ns + "_" + strings.Join(subject, "_") }

func (k keys) queues() string                     { return k.key("queues") }
func (k keys) pending(queue string) string        { return k.key("pending_tasks", queue) }
func (k keys) reserved(queue, node string) string { return k.key("reserved_tasks", queue, node) }
func (k keys) started(queue string) string        { return k.key("started_tasks", queue) }
func (k keys) complete(queue string) string       { return k.key("complete_tasks", queue) }
func (k keys) failed(queue string) string         { return k.key("failed_tasks", queue) }
func (k keys) scheduled(queue string) string      { return k.key("scheduled_tasks", queue) }
func (k keys) listeners(queue string) string      { return k.key("listeners", queue) }
func (k keys) task(id string) string              { return k.key("task", id) }

func (k keys) channel(queue string) string { return k.key("channel", queue) }
func (k keys) done(id string) string       { return k.key("done", id) }
func (k keys) waiters() string             { return k.key("waiters") }
func (k keys) nodes() string               { return k.key("nodes") }
func (k keys) node(listener string) string { return k.key("node", listener) }
func (k keys) index(queue string) string   { return k.key("tasks", queue) }
func (k keys) sample() string              { return k.key("sample") }
func (k keys) paused() string              { return k.key("paused") }
func (k keys) bytes(id string) string      { return k.key("bytes", id) }
func (k keys) log(id string) string        { return k.key("log", id) }
func (k keys) attempts(id string) string   { return k.key("attempts", id) }
func (k keys) stats(queue string) string   { return k.key("stats", queue) }
func (k keys) purged(queue string) string  { return k.key("purged", queue) }
func (k keys) duty(name string) string     { return k.key("duty", name) }
func (k keys) version() string             { return k.key("version") }
func (k keys) control() string             { return k.key("control") }
func (k keys) limits() string              { return k.key("limits") }
func (k keys) crashes() string             { return k.key("crashes") }
func (k keys) audit() string               { return k.key("audit") }
func (k keys) once(id string) string       { return k.key("once", id) }
func (k keys) minute(number string) string { return k.key("minute", number) }
func (k keys) hour(number string) string   { return k.key("hour", number) }
func (k keys) blocked(queue string) string { return k.key("blocked", queue) }
func (k keys) after(id string) string      { return k.key("after", id) }
func (k keys) children(id string) string   { return k.key("children", id) }
func (k keys) ended() string               { return k.key("ended") }
func (k keys) ticks() string               { return k.key("ticks") }
func (k keys) schedule(id string) string   { return k.key("schedule", id) }
func (k keys) jobs() string                { return k.key("jobs") }
func (k keys) job(id string) string        { return k.key("job", id) }
func (k keys) jobItems(id string) string   { return k.key("job_items", id) }
func (k keys) jobEnds(id string) string    { return k.key("job_ends", id) }

func (k keys) subscriptions() string            { return k.key("subscriptions") }
func (k keys) generation() string               { return k.key("generation") }
func (k keys) topics() string                   { return k.key("topics") }
func (k keys) topic(topic string) string        { return k.key("topic", topic) }
func (k keys) publications(topic string) string { return k.key("publications", topic) }
func (k keys) publishing() string               { return k.key("publishing") }
func (k keys) publication(id string) string     { return k.key("publication", id) }
func (k keys) published(id string) string       { return k.key("published", id) }

func (k keys) level(priority, queue string) string { return k.key("pending", priority, queue) }
func (k keys) priorities(queue string) string      { return k.key("priorities", queue) }
func (k keys) expiry(queue string) string          { return k.key("expiry", queue) }
func (k keys) keyed(queue string) string           { return k.key("keys", queue) }
func (k keys) unique(queue, hash string) string    { return k.key("unique", queue, hash) }

// listedChildren is how many children of a task, and dependents that come after its end, are listed.
const listedChildren = 10_000

// luaNames declares bounds that Go and the scripts share, and the keys' names for the scripts, in capitals and without the tenant:
// PENDING_TASKS_ for NS_pending_tasks_Q. A script takes its tenant, NS, from its first key: a tenant's name has no underscore.
var luaNames = func() string {
	k := keys{} // every name without its tenant, and so beginning with an underscore
	text := "local NS = string.match(KEYS[1], '^[^_]*')\n"
	for _, key := range []string{
		k.queues(), k.nodes(), k.paused(), k.control(), k.limits(), k.crashes(), k.ended(), k.waiters(),
		k.pending(""), k.reserved("", ""), k.started(""), k.complete(""), k.failed(""), k.scheduled(""),
		k.listeners(""), k.channel(""), k.index(""), k.stats(""), k.purged(""), k.priorities(""), k.expiry(""), k.keyed(""),
		k.level("", ""), k.unique("", ""), k.task(""), k.bytes(""), k.log(""), k.attempts(""), k.done(""), k.duty(""), k.node(""),
		k.minute(""), k.hour(""),
		k.job(""), k.jobItems(""), k.jobEnds(""), k.blocked(""), k.after(""), k.children(""),
		k.subscriptions(), k.generation(), k.topics(), k.topic(""), k.publications(""), k.publishing(), k.publication(""), k.published(""),
		k.schedule(""),
	} {
		key = strings.Replace(key, "__", "_", 1) // before two parts
		text += fmt.Sprintf("local %s = NS .. '%s'\n", strings.ToUpper(key[1:]), key)
	}
	return text + fmt.Sprintf("local SEARCHED = %d\nlocal UNIQUE_LIFE = %d\nlocal LISTED_CHILDREN = %d\n", searched, int64(uniqueLife.Seconds()), listedChildren)
}()

// uniqueLife bounds a uniqueness that ends with its task, should the task never finish.
const uniqueLife = 90 * 24 * time.Hour

// searched is the longest list that is searched for an ID: more would take Redis milliseconds.
const searched = 100_000

// quernListener is the form of listenerID, which Blueque's own IDs do not have.
var quernListener = regexp.MustCompile(`~[0-9a-f]{8}_[0-9]+$`)

func isQuernListener(id string) bool { return quernListener.MatchString(id) }
