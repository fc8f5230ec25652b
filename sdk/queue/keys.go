package queue

import (
	"cmp"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // names, no secrets
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// DefaultTenant is the key prefix that Blueque's own Python package uses; the package knows no other.
const DefaultTenant = "blueque"

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

// ValidTenant checks the name of a tenant: 1 to 32 of a–z 0–9 and -, or such a word in braces (a Redis Cluster hash tag). An
// underscore would let one tenant's keys be taken for another's.
func ValidTenant(name string) error {
	if !validTenant.MatchString(name) {
		return fmt.Errorf("%w: tenant %q: use 1 to 32 of a-z 0-9 and -, or such a word in braces", ErrInvalid, name)
	}
	return nil
}

var validTenant = regexp.MustCompile(`^([a-z0-9-]{1,32}|\{[a-z0-9-]{1,32}\})$`)

// ValidQueue checks the name of a queue: 1 to 128 bytes from 0x21 to 0x7e.
func ValidQueue(name string) error { return validName("queue", name) }

// WebhookQueues begins the names of the queues whose tasks are deliveries of webhooks.
const WebhookQueues = "webhook."

// ReservedQueue tells whether a queue takes only the tasks that publications make: deliveries are signed, so a producer
// that could enqueue one could forge it.
func ReservedQueue(queue string) bool { return strings.HasPrefix(queue, WebhookQueues) }

// ValidTarget checks the name of a queue that tasks or dead letters are to come to: a valid one that is not a ReservedQueue.
func ValidTarget(queue string) error {
	if ReservedQueue(queue) {
		return fmt.Errorf("%w: queue %q: those that begin with %s take only what is published: name another, or publish to the topic of its subscription",
			ErrInvalid, queue, WebhookQueues)
	}
	return ValidQueue(queue)
}

// reservedID are the IDs of the tasks that publications make, and of dead letters: a task that took one first would stand in for it.
var reservedID = regexp.MustCompile(`^(pub|dead)-[0-9a-f]{40}(-|$)`)

// IsLetter tells whether an ID is that of a dead letter.
func IsLetter(id string) bool { return strings.HasPrefix(id, "dead-") && reservedID.MatchString(id) }

// validNewID checks an ID that a producer chose for a new task.
func validNewID(id string) error {
	if reservedID.MatchString(id) {
		return fmt.Errorf("%w: task ID %q: only publications and dead letters have such IDs: choose another", ErrInvalid, id)
	}
	return ValidID(id)
}

// ValidID checks a task ID: 1 to 128 bytes from 0x21 to 0x7e.
func ValidID(id string) error { return validName("task ID", id) }

// shortened is a name that begins with this prefix and ends with the ID, or, if that is too long for a name, with its SHA-1.
func shortened(prefix, id string) string {
	if len(prefix)+len(id) <= maxName {
		return prefix + id
	}
	sum := sha1.Sum([]byte(id)) //nolint:gosec // a name, no secret; scripts know no other
	return prefix + hex.EncodeToString(sum[:])
}

// maxName is the most bytes of a name.
const maxName = 128

func validName(what, name string) error {
	if len(name) == 0 || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%w: %s %.150q: use 1 to 128 printable ASCII characters without spaces", ErrInvalid, what, name)
	}
	if name == "." || name == ".." {
		return fmt.Errorf("%w: %s %q: no URL can name it, so neither can the page: choose another one", ErrInvalid, what, name)
	}
	return nil
}

// quernListener is the form of listenerID, which Blueque's own IDs do not have.
var quernListener = regexp.MustCompile(`~[0-9a-f]{8}_[0-9]+$`)

func isQuernListener(id string) bool { return quernListener.MatchString(id) }

// listenerID makes the ID of a listener: HOSTNAME~RANDOM_PID. Blueque parses the process ID. The random part keeps its
// claim_orphan, which compares hostnames, from Quern's listeners, and tells apart two containers with the same hostname.
func listenerID(host string, pid int) string {
	host = strings.Map(func(r rune) rune {
		if r == '_' || r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}, cmp.Or(host, "localhost"))
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s~%s_%d", host, hex.EncodeToString(random[:]), pid)
}
