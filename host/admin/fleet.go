package admin

import (
	"github.com/quern-project/quern/host/webhook"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Node is a listener: a host, a worker, a Python listener, or the listener of a host that delivers webhooks.
type Node struct {
	Listener   string                    `json:"listener"`
	Tenant     string                    `json:"tenant"`
	Kind       string                    `json:"kind" doc:"quern, go, python, or webhook: what delivers webhooks."`
	Version    string                    `json:"version,omitempty"`
	LeaseEnds  float64                   `json:"lease_ends,omitempty" doc:"Missing: it has no lease, or its tasks are being reclaimed."`
	Alive      bool                      `json:"alive" doc:"Its lease has not ended, or it is a Python listener, of which nobody knows."`
	Draining   bool                      `json:"draining"`
	Slots      *int                      `json:"slots,omitempty"`
	SlotsInUse *int                      `json:"slots_in_use,omitempty" doc:"By tasks of all tenants."`
	Running    map[string]listen.Running `json:"running,omitempty" doc:"What runs of this tenant on a host, by queue."`
	Queues     []string                  `json:"queues"`
	Holds      map[string][]string       `json:"holds" doc:"The newest tasks that it holds, started or not, by queue."`
	Name       string                    `json:"name,omitempty" doc:"Of its host."`
	Uptime     float64                   `json:"uptime_seconds,omitempty"`
	Address    string                    `json:"address,omitempty" doc:"Of the host's metrics."`
	Memory     int64                     `json:"memory,omitempty" doc:"Bytes that all of its running tasks together may have."`
	Reserved   int64                     `json:"memory_reserved,omitempty" doc:"Bytes of it that are reserved now, for running tasks of all tenants and beside them."`
	WaitsFor   []string                  `json:"waits_for_memory,omitempty" doc:"The queues for whose next task it has no memory now."`
	Away       []listen.DatabaseAway     `json:"databases_away,omitempty" doc:"Databases of handlers that do not serve; tasks that use them are put off."`
	Off        []webhook.Off             `json:"destinations_off,omitempty" doc:"Destinations of webhooks that it has switched off; their deliveries wait."`
	Secrets    []string                  `json:"webhook_secrets,omitzero" required:"false" doc:"Names of the secrets that its host has for webhooks. Missing: not known."`
}

// Reclaimed counts the tasks of a dead listener by what became of them.
type Reclaimed struct {
	Listener  string `json:"listener"`
	Returned  int    `json:"returned" doc:"To the front of their queues."`
	Scheduled int    `json:"scheduled" doc:"For later: several hosts died while they ran."`
	Failed    int    `json:"failed" doc:"Too many hosts died, or they must not run twice."`
	Dropped   int    `json:"dropped" doc:"The listener had lost them already."`
}

// Released is a version of a plugin whose quarantine was ended.
type Released struct {
	Plugin string `json:"plugin"`
	Digest string `json:"digest"`
}

// Quarantine is a version of a plugin that no host runs, because its tasks ended several hosts or failed in a row.
type Quarantine struct {
	Plugin    string   `json:"plugin"`
	Digest    string   `json:"digest"`
	Cause     string   `json:"cause" enum:"crashes,failures" doc:"Its tasks ended hosts, or failed in a row: its circuit breaker is open."`
	Listeners []string `json:"listeners" doc:"The hosts that its tasks ended."`
	Until     float64  `json:"until" doc:"When it ends by itself, or a task runs as the probe of the circuit breaker."`
	Failures  int      `json:"failures,omitempty" doc:"With cause failures: how many runs failed in a row."`
	Reason    string   `json:"reason,omitempty" doc:"Of these failures."`
	Probe     string   `json:"probe,omitempty" doc:"The task that runs as the probe; missing: none does."`
}

// Bucket describes a bucket, in which handlers store values by key.
type Bucket struct {
	Tenant string `json:"tenant"`
	Bucket string `json:"bucket"`
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"`
	Quota  int64  `json:"quota,omitempty" doc:"Bytes: the most that a plugin of a live host may write; missing: none may."`
}

// AuditEntry is an entry of the audit log: an action of a person or program.
type AuditEntry struct {
	ID     string  `json:"id"`
	Time   float64 `json:"time"`
	Who    string  `json:"who"`
	Action string  `json:"action" doc:"The operation's ID in this document."`
	On     string  `json:"on,omitempty"`
	From   string  `json:"from"`
	Status int     `json:"status" doc:"Of the answer."`
	Detail string  `json:"detail,omitempty"`
}

// NewAuditEntry converts an entry of the audit log to the form that operators see.
func NewAuditEntry(e manage.AuditEntry) AuditEntry {
	return AuditEntry{e.ID, Seconds(e.Time), e.Who, e.Action, e.On, e.From, e.Status, e.Detail}
}

// NewReclaimed converts the counts of a listener's reclaimed tasks to the form that operators see.
func NewReclaimed(listener string, r listen.Reclaimed) Reclaimed {
	return Reclaimed{listener, r.Returned, r.Scheduled, r.Failed, r.Dropped}
}

// NewQuarantine converts a quarantine to the form that operators see.
func NewQuarantine(q listen.Quarantine) Quarantine {
	return Quarantine{
		q.Plugin, q.Digest, string(q.Cause), append([]string{}, q.Listeners...), Seconds(q.Until),
		q.Failures, string(q.Reason), q.Probe,
	}
}
