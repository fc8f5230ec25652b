package queue

import (
	"encoding/json"
	"mime"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// PublicationState says how far a publication has got.
type PublicationState string

// The states of a publication. It passes through them in this order, and ends in one of the last two.
const (
	PublicationAccepted   PublicationState = "accepted"   // the publishing task completed; no subscribers are chosen yet
	PublicationUnfinished PublicationState = "publishing" // subscribers are chosen, but not all of them have their task
	PublicationDone       PublicationState = "published"  // all subscribers have their task, or were refused one
	PublicationDropped    PublicationState = "dropped"    // no subscription matched
)

// IsJSON reports whether a content type is JSON: its subtype is json or ends with +json, or it is empty, which stands
// for JSON in CloudEvents (JSON Event Format 1.0.2, section 3.1).
func IsJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && (strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json"))
}

// Publication is a message that was published to a topic.
type Publication struct {
	ID, Topic   string
	State       PublicationState
	Payload     []byte
	Attributes  map[string]string
	Created     time.Time
	Parent      string // the task that published it
	Depth       int    // length of the chain of parents, as in Options
	Traceparent string
	Tracestate  string
	// Subscribers is the number of subscriptions that matched. Tasks is the number of those that have their task. Refused
	// is the number of those that get no task, because the subscription was deleted meanwhile, or its queue accepts no
	// tasks.
	Subscribers, Tasks, Refused int

	turns int // number of subscribers handled so far: Tasks + Refused
}

// ParsePublication makes a Publication from the fields of its hash. A damaged field stays zero.
func ParsePublication(id string, hash map[string]string) *Publication {
	p := &Publication{
		ID: id, Topic: hash["topic"], Payload: []byte(hash["parameters"]), Created: store.ParseSeconds(hash["created"]),
		Parent: hash["parent"], Depth: int(store.AsInt(hash["depth"])), Traceparent: hash["traceparent"],
		Tracestate:  hash["tracestate"],
		Subscribers: int(store.AsInt(hash["subscribers"])), Refused: int(store.AsInt(hash["refused"])),
		turns: int(store.AsInt(hash["tasks"])),
	}
	p.Tasks = max(0, p.turns-p.Refused)
	_ = json.Unmarshal([]byte(hash["attributes"]), &p.Attributes) // damaged attributes are left out
	switch {
	case hash["subscribers"] == "":
		p.State = PublicationAccepted
	case p.turns < p.Subscribers:
		p.State = PublicationUnfinished
	case p.Subscribers == 0:
		p.State = PublicationDropped
	default:
		p.State = PublicationDone
	}
	return p
}
