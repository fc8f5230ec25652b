package queue

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// DefaultTenant is the key prefix of Blueque's Python package, which supports no other prefix.
const DefaultTenant = "blueque"

// ValidTenant checks the name of a tenant: 1 to 32 of the characters a–z, 0–9 and -, or a word of these characters in
// braces (a Redis Cluster hash tag). With an underscore in its name, a tenant could have the same keys as another
// tenant.
func ValidTenant(name string) error {
	if !validTenant.MatchString(name) {
		return fmt.Errorf("%w: tenant %q: use 1 to 32 of a-z 0-9 and -, or such a word in braces", ErrInvalid, name)
	}
	return nil
}

var validTenant = regexp.MustCompile(`^([a-z0-9-]{1,32}|\{[a-z0-9-]{1,32}\})$`)

// ValidQueue checks the name of a queue: 1 to 128 bytes from 0x21 to 0x7e.
func ValidQueue(name string) error { return validName("queue", name) }

// WebhookQueues is the prefix of queues whose tasks are deliveries of webhooks.
const WebhookQueues = "webhook."

// ReservedQueue reports whether a queue accepts only tasks that publications make. Hosts sign the deliveries in these
// queues, so a producer that could enqueue there could get a forged delivery signed.
func ReservedQueue(queue string) bool { return strings.HasPrefix(queue, WebhookQueues) }

// ValidTarget checks the name of a queue for new tasks or dead letters: it must be valid, and must not be a
// ReservedQueue.
func ValidTarget(queue string) error {
	if ReservedQueue(queue) {
		return fmt.Errorf("%w: queue %q: queues that begin with %s accept only publications: name another queue, or publish to the topic of its subscription",
			ErrInvalid, queue, WebhookQueues)
	}
	return ValidQueue(queue)
}

// reservedID matches the IDs of dead letters, and of the tasks that publications make. A producer's task with a
// reserved ID would prevent the dead letter, or the publication's task, that gets the same ID.
var reservedID = regexp.MustCompile(`^(pub|dead)-[0-9a-f]{40}(-|$)`)

// IsLetter reports whether a task ID is the ID of a dead letter.
func IsLetter(id string) bool { return strings.HasPrefix(id, "dead-") && reservedID.MatchString(id) }

// validNewID checks an ID that a producer has chosen for a new task.
func validNewID(id string) error {
	if reservedID.MatchString(id) {
		return fmt.Errorf("%w: task ID %q: only publications and dead letters have such IDs: choose another", ErrInvalid, id)
	}
	return ValidID(id)
}

// ValidID checks a task ID: 1 to 128 bytes from 0x21 to 0x7e.
func ValidID(id string) error { return validName("task ID", id) }

// shortened returns prefix followed by id. If that is longer than maxName, it returns prefix followed by the SHA-1 of
// id.
func shortened(prefix, id string) string { return shortenedTo(maxName, prefix, id) }

func shortenedTo(most int, prefix, id string) string {
	if len(prefix)+len(id) <= most {
		return prefix + id
	}
	sum := sha1.Sum([]byte(id)) //nolint:gosec // a name, no secret; scripts know no other
	return prefix + hex.EncodeToString(sum[:])
}

// maxName is the maximum length of a name in bytes.
const maxName = 128

func validName(what, name string) error {
	if len(name) == 0 || len(name) > maxName || strings.ContainsFunc(name,
		func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%w: %s %.150q: use 1 to 128 printable ASCII characters without spaces", ErrInvalid, what, name)
	}
	if name == "." || name == ".." {
		return fmt.Errorf("%w: %s %q cannot be part of a URL: choose another name", ErrInvalid, what, name)
	}
	return nil
}

// ValidPublication checks the ID of a publication.
func ValidPublication(id string) error { return validName("publication", id) }
