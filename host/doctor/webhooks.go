package doctor

import (
	"encoding/json"
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

// Unsigned reports whether deliveries of a webhook have nothing by which its server recognizes them: neither a
// signature nor a secret header.
func Unsigned(w *queue.Webhook) bool {
	return w != nil && len(w.Secrets) == 0 && len(w.SecretHeaders) == 0
}
