package doctor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
)

// What a listener has switched off is found with the rule and the time left, and so is a webhook that ended itself.
func TestWebhooks(t *testing.T) {
	client, _ := tenant(t)
	ctx := t.Context()
	node := client.Node()
	_, subscribed := client.Subscribe(ctx, queue.Subscription{ID: "gone", Topic: "t", Webhook: &queue.Webhook{URL: "https://example.com/"}})
	_, changed := client.ChangeSubscription(ctx, "gone", func(s *queue.Subscription) error {
		s.Active, s.Reason = false, queue.ReasonGone
		return nil
	})
	joined := node.Join(ctx)
	_, renewed := node.Renew(ctx, map[string]string{
		"kind": queue.KindWebhook, "destinations_off": `[{"destination":"https://example.com","failures":10,"until":4102444800,"error":"the server answered 500"}]`,
	})
	if err := errors.Join(joined, subscribed, changed, renewed); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range examine(t, client) {
		found[f.Check] = f.Problem + " " + strings.Join(f.Command, " ")
	}
	if text := found["webhook-off"]; !strings.Contains(text, "https://example.com: 10 deliveries in a row failed (the server answered 500); the next one tries it in") || !strings.HasSuffix(text, "subscription deliveries gone") {
		t.Errorf("found %q", text)
	}
	if text := found["webhook-inactive"]; !strings.Contains(text, "410 Gone") || !strings.Contains(text, "subscription resume gone") {
		t.Errorf("found %q", text)
	}
}
