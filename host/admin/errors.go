package admin

import (
	"errors"
	"fmt"
	"net/http"

	guest "github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/release"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// Only a server or its API returns these errors.
var (
	// ErrNoQueue means that nobody has used the queue.
	ErrNoQueue = errors.New("no such queue")
	// ErrNoToken means that the server refuses a client without a token and without a client certificate.
	ErrNoToken = errors.New("no token, and no client certificate: the server wants one of them")
	// ErrUnauthorized means that the server refuses the client's token. ErrForbidden means that the server does not allow
	// the token's holder the operation.
	ErrUnauthorized = errors.New("unauthorized")
	ErrForbidden    = errors.New("forbidden")
)

// ServerError means that a server did not answer, asked to be called later, or answered as Quern's API does not.
type ServerError struct {
	URL string
	Err error
}

func (e *ServerError) Error() string { return fmt.Sprintf("ask %s: %v", e.URL, e.Err) }
func (e *ServerError) Unwrap() error { return e.Err }

// KnownError is a kind of error that callers can do something about.
type KnownError struct {
	Name    string // identifies the kind to programs, in the type of the API's problems
	Err     error  // errors of this kind wrap Err
	Status  int    // HTTP status of the API's answer
	Remedy  string // what users of the API can do; "" if the error says enough
	Command string // what users of the command line can do; "" if the error says enough
}

// KnownErrors lists all kinds. If an error matches several kinds, the first one counts.
var KnownErrors = []KnownError{
	{
		"no-task", queue.ErrNoTask, http.StatusNotFound, "it may have been deleted; search for it with GET /v1/tenants/TENANT/tasks",
		"look for it with `quern task ls`, and mind --tenant",
	},
	{
		"no-node", listen.ErrNoNode, http.StatusNotFound,
		"none of that ID has a lease; it may be dead, or a Python one: list them with GET /v1/tenants/TENANT/nodes", "",
	},
	{
		"no-relay", listen.ErrNoRelay, http.StatusNotFound, "list them with GET /v1/tenants/TENANT/relays",
		"list them with `quern database ls`, and mind --tenant",
	},
	{
		"no-topic", queue.ErrNoTopic, http.StatusNotFound, "nobody published or subscribed to it",
		"list them with `quern topic ls`, and mind --tenant",
	},
	{
		"no-subscription", queue.ErrNoSubscription, http.StatusNotFound,
		"list them with GET /v1/tenants/TENANT/subscriptions",
		"list them with `quern subscription ls`, and mind --tenant",
	},
	{
		"no-record", manage.ErrNoRecord, http.StatusNotFound,
		"its plugin's manifest asks for one with record: failed; one over limits.record is not kept",
		"write record: failed into the manifest of its plugin; one over limits.record is not kept",
	},
	{
		"no-publication", queue.ErrNoPublication, http.StatusNotFound, "it may have been purged",
		"it may have been purged, or mind --tenant",
	},
	{
		"no-release", release.ErrNoRelease, http.StatusNotFound,
		"list them with GET /v1/tenants/TENANT/plugins/PLUGIN/releases",
		"see `quern plugin ls`, and mind --tenant",
	},
	{
		"frozen", release.ErrFrozen, http.StatusConflict, "thaw it first",
		"end that with `quern plugin freeze NAME --off`",
	},
	{
		"release-serves", release.ErrServes, http.StatusConflict, "serve another one first",
		"roll back first",
	},
	{
		"no-canary", release.ErrNoCanary, http.StatusConflict, "list the releases with GET /v1/tenants/TENANT/plugins/PLUGIN/releases",
		"see `quern plugin releases NAME`",
	},
	{
		"release-canary", release.ErrCanary, http.StatusConflict, "halt it first",
		"halt it with `quern plugin halt NAME` first",
	},
	{"missing-piece", release.ErrMissing, http.StatusConflict, "", ""},
	{"no-room", release.ErrNoRoom, http.StatusConflict, "", ""},
	{
		"sealed", seal.ErrKey, http.StatusConflict, "give the server the tenant's keys: see quern help encryption",
		"give the key with --payload-keys FILE: see quern help encryption",
	},
	{"exists", queue.ErrExists, http.StatusConflict, "", ""},
	{"no-queue", ErrNoQueue, http.StatusNotFound, "", ""},
	{"no-value", guest.ErrNotFound, http.StatusNotFound, "", ""},
	{
		"no-schedule", queue.ErrNoSchedule, http.StatusNotFound, "list them with GET /v1/tenants/TENANT/schedules",
		"see `quern schedule ls`",
	},
	{
		"owned", queue.ErrOwned, http.StatusConflict, "change it there, or delete it first",
		"change it there, in the plugin's manifest or the file; or delete one that was made by hand, or whose file is no more: see `quern schedule ls`",
	},
	{
		"overtaken", queue.ErrOvertaken, http.StatusConflict, "sync this list again if it is the newer one",
		"sync this file again if it is the newer one",
	},
	{"many-schedules", queue.ErrManySchedules, http.StatusConflict, "delete some", "delete some"},
	{"invalid", queue.ErrInvalid, http.StatusBadRequest, "", ""},
	{"invalid", guest.ErrInvalid, http.StatusBadRequest, "", ""},
	{"not-unique", queue.ErrUnique, http.StatusConflict, "", ""},
	{"status", queue.ErrStatus, http.StatusConflict, "", ""},
	{"dependency", queue.ErrDependency, http.StatusConflict, "", ""},
	{"many-queues", queue.ErrManyQueues, http.StatusConflict, "", ""},
	{
		"paused", manage.ErrPaused, http.StatusLocked, "wait until somebody resumes it: see GET /v1/tenants/TENANT/pauses",
		"",
	},
	{
		"quota", manage.ErrQuota, http.StatusTooManyRequests, "use less, or ask the operator for more",
		"use less, or raise it with `quern tenant set`: see `quern tenant show`",
	},
	{
		"queue-full", queue.ErrQueueFull, http.StatusTooManyRequests, "wait until the queue is shorter, enqueue fewer at once, or raise its limit",
		"wait until the queue is shorter, enqueue fewer at once, or raise its limit with `quern queue limit QUEUE N`",
	},
	{"letter-stays", queue.ErrLetterStays, http.StatusConflict, "delete the letter", ""},
	{"damaged", queue.ErrDamaged, http.StatusConflict, "delete the key in Redis, or take another tenant", ""},
}

// Known returns the kind of an error, or the zero KnownError if no kind matches.
func Known(err error) KnownError {
	for _, kind := range KnownErrors {
		if errors.Is(err, kind.Err) {
			return kind
		}
	}
	if manage.Refusal(err) == "WRONGTYPE" {
		return KnownErrors[len(KnownErrors)-1] // damaged
	}
	return KnownError{}
}
