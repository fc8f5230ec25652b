package admin

import (
	"errors"
	"fmt"
	"net/http"

	guest "github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// The errors that only a server or its API returns.
var (
	// ErrNoQueue is the error about a queue that nobody has used.
	ErrNoQueue = errors.New("no such queue")
	// ErrNoToken is the error of a server that refuses a client without a token.
	ErrNoToken = errors.New("no token, and no client certificate: the server wants one of them")
	// ErrUnauthorized is the error of a server that refuses a client's token. ErrForbidden is the error of a server
	// that does not allow the token's holder the operation.
	ErrUnauthorized = errors.New("unauthorized")
	ErrForbidden    = errors.New("forbidden")
)

// ServerError is the error of a server that does not answer, or not as the API does.
type ServerError struct {
	URL string
	Err error
}

func (e *ServerError) Error() string { return fmt.Sprintf("ask %s: %v", e.URL, e.Err) }
func (e *ServerError) Unwrap() error { return e.Err }

// KnownError is a kind of error that callers can do something about.
type KnownError struct {
	Name    string // names the kind in answers of the API, for programs
	Err     error
	Status  int    // of HTTP
	Remedy  string // for users of the API
	Command string // the remedy for users of the command line
}

// KnownErrors are all kinds; the first kind that matches an error counts.
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
		"no-topic", queue.ErrNoTopic, http.StatusNotFound, "nobody published or subscribed to it",
		"list them with `quern topic ls`, and mind --tenant",
	},
	{
		"no-subscription", queue.ErrNoSubscription, http.StatusNotFound,
		"list them with GET /v1/tenants/TENANT/subscriptions",
		"list them with `quern subscription ls`, and mind --tenant",
	},
	{
		"no-publication", queue.ErrNoPublication, http.StatusNotFound, "it may have been purged",
		"it may have been purged, or mind --tenant",
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
		"queue-full", queue.ErrQueueFull, http.StatusTooManyRequests, "wait until the queue is shorter, or raise its limit",
		"",
	},
	{"letter-stays", queue.ErrLetterStays, http.StatusConflict, "delete the letter", ""},
	{"damaged", queue.ErrDamaged, http.StatusConflict, "delete the key in Redis, or take another tenant", ""},
}

// Known returns the kind of an error; the zero KnownError if the error is of no kind.
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
