package doctor

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// off is a destination of webhooks that a listener has switched off. The fields are those that the listener publishes.
type off struct {
	Destination string  `json:"destination"`
	Failures    int     `json:"failures"`
	Until       float64 `json:"until"`
	Error       string  `json:"error"`
}

var webhookChecks = []check{
	{"webhook-off", func(p *patient) {
		for _, node := range p.nodes {
			var destinations []off
			if node.Kind != listen.KindWebhook || !node.LeaseEnd.After(p.now) ||
				json.Unmarshal([]byte(node.About["destinations_off"]), &destinations) != nil {
				continue
			}
			for _, d := range destinations {
				f := p.found(Warning, "mend the server: its deliveries wait and lose no attempt",
					"%s has switched off webhooks to %s: %d deliveries in a row failed (%s); the next one tries it in %s",
					node.ID, d.Destination, d.Failures, d.Error, max(0, time.Unix(int64(d.Until), 0).Sub(p.now)).Round(time.Second))
				there := func(s queue.Subscription) bool { return s.Webhook != nil && s.Webhook.Origin() == d.Destination }
				if s := p.subscription(there); s != nil {
					f.by("subscription", "deliveries", s.ID).in(s.Queue)
				}
			}
		}
	}},
	{"webhook-failing", func(p *patient) {
		for i, tasks := range p.timed {
			if !queue.ReservedQueue(p.queues[i]) {
				continue
			}
			tried := slices.DeleteFunc(slices.Clone(tasks), func(t *queue.Task) bool { return t.Attempts == 0 || t.LastError == "" })
			if len(tried) == 0 {
				continue
			}
			most := slices.MaxFunc(tried, func(a, b *queue.Task) int { return cmp.Compare(a.Attempts, b.Attempts) })
			p.undelivers(most, queue.ParseFailure(most.LastError), ", and it is tried again at "+utc(most.ETA), len(tried))
		}
		for _, task := range p.undelivered {
			if task.Reason != queue.ReasonCancelled && p.now.Sub(task.FinishedAt) < recentMinutes*time.Minute {
				p.undelivers(task, task.Failure(), " for good", 1)
			}
		}
	}},
	{"webhook-unsigned", func(p *patient) {
		for _, s := range p.subscriptions {
			if s.Active && Unsigned(s.Webhook) {
				p.found(Note, "let a secret sign them",
					"the webhook %s has no secret: its server cannot tell its deliveries from forged ones", s.ID).
					by("subscription", "update", s.ID, "--secret", queue.WebhookSecrets+s.ID).in(s.Queue).
					like("%d webhooks have no secret: their servers cannot tell deliveries from forged ones")
			}
		}
	}},
	{"webhook-inactive", func(p *patient) {
		for _, s := range p.subscriptions {
			if s.Webhook != nil && !s.Active && s.Reason == queue.ReasonGone {
				p.found(Warning, "mend the server and resume it, or delete it", "the webhook %s is switched off: %s", s.ID,
					s.Reason).
					by("subscription", "resume", s.ID).in(s.Queue)
			}
		}
	}},
}

// undelivers adds a finding for a delivery whose attempts failed. end says what became of the delivery, and tasks is
// how many deliveries of the webhook fail like it.
func (p *patient) undelivers(task *queue.Task, why queue.Failure, end string, tasks int) {
	id := strings.TrimPrefix(task.Queue, queue.WebhookQueues)
	p.told[task.Queue] = true
	p.found(Warning, "mend what the error names, or the server, and see its deliveries",
		"attempt %d of the delivery %s of the webhook %s failed%s: %s", task.Attempts, task.ID, id, end, why.Headline()).
		by("subscription", "deliveries", id).in(task.Queue).hurts(int64(tasks)).since(task.Created).
		like("deliveries of %d webhooks fail")
}

// utc formats a time for a problem.
func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Unsigned reports whether deliveries of a webhook have nothing by which its server recognizes them: neither a
// signature nor a secret header.
func Unsigned(w *queue.Webhook) bool {
	return w != nil && len(w.Secrets) == 0 && len(w.SecretHeaders) == 0
}
