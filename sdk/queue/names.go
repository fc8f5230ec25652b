package queue

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// DefaultTenant is the key prefix that Blueque's own Python package uses; the package knows no other.
const DefaultTenant = "blueque"

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

// ValidPublication checks the ID of a publication.
func ValidPublication(id string) error { return validName("publication", id) }
