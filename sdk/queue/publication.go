package queue

import (
	"encoding/json"
	"mime"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// PublicationState is where a publication stands.
type PublicationState string

// The life of a publication: accepted with the completion of the task that published it, subscribers chosen but not all with a
// task yet, and then one of the others.
const (
	PublicationAccepted   PublicationState = "accepted"
	PublicationUnfinished PublicationState = "publishing"
	PublicationDone       PublicationState = "published"
	PublicationDropped    PublicationState = "dropped" // nobody subscribed to it
)

// IsJSON reports whether a content type is that of JSON: any of the subtype json, or that ends with +json; and none, as in CloudEvents
// (JSON Event Format 1.0.2, section 3.1).
func IsJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && (strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json"))
}

// Publication is what was published to a topic.
type Publication struct {
	ID, Topic   string
	State       PublicationState
	Payload     []byte
	Attributes  map[string]string
	Created     time.Time
	Parent      string // the task that published it
	Depth       int    // as in Options
	Traceparent string
	Tracestate  string
	// Subscribers is how many subscriptions matched, Tasks how many of them have got their task, and Refused those that get none:
	// they were deleted meanwhile, or their queue takes none.
	Subscribers, Tasks, Refused int

	turns int // how many have had their turn: Tasks and Refused
}

// ParsePublication reads the fields of a hash. What is damaged stays zero.
func ParsePublication(id string, hash map[string]string) *Publication {
	p := &Publication{
		ID: id, Topic: hash["topic"], Payload: []byte(hash["parameters"]), Created: store.ParseSeconds(hash["created"]),
		Parent: hash["parent"], Depth: int(store.AsInt(hash["depth"])), Traceparent: hash["traceparent"], Tracestate: hash["tracestate"],
		Subscribers: int(store.AsInt(hash["subscribers"])), Refused: int(store.AsInt(hash["refused"])), turns: int(store.AsInt(hash["tasks"])),
	}
	p.Tasks = max(0, p.turns-p.Refused)
	_ = json.Unmarshal([]byte(hash["attributes"]), &p.Attributes) // damaged ones are none
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
