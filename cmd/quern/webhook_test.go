package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

const receiverSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receiver starts the example, which verifies signatures with a library that others wrote, and returns its URL and what it prints.
func receiver(t *testing.T, secret string) (url string, lines func() string) {
	t.Helper()
	python := "../../build/venv/bin/python"
	if exec.CommandContext(t.Context(), python, "-c", "import standardwebhooks").Run() != nil {
		runtimetest.Missing(t, "left out, there is no standardwebhooks: run make deps")
	}
	cmd := exec.CommandContext(t.Context(), python, "../../examples/webhook/receiver.py", "0")
	cmd.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	read := bufio.NewReader(out)
	line := func() string {
		text, err := read.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(text)
	}
	return "http://127.0.0.1:" + strings.TrimPrefix(line(), "listening on "), line
}

// A publication reaches the receiver's example, signed so that a library of others takes it; also by an old and a new secret.
func TestWebhookReceiver(t *testing.T) { overBoth(t, testWebhookReceiver) }

func testWebhookReceiver(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL())
	secrets := filepath.Join(t.TempDir(), "secrets")
	if err := os.MkdirAll(filepath.Join(secrets, "blueque"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, secret := range map[string]string{"webhook.orders": receiverSecret + "\n", "webhook.next": "whsec_bmV4dCBzZWNyZXQgb2YgdGhlIHJlY2VpdmVy"} {
		if err := os.WriteFile(filepath.Join(secrets, "blueque", name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	url, line := receiver(t, receiverSecret)
	u.host(folder(t, nil), "--secrets", secrets, "--allow-networks", "127.0.0.0/8")
	u.must("subscription", "create", "orders", "--topic", "orders.*", "--url", url+"/", "--secret", "webhook.next", "--secret", "webhook.orders")
	u.must("topic", "publish", "orders.made", `{"id": 7}`)
	if got := line(); got != `{"id": 7}` {
		t.Errorf("the receiver printed %q", got)
	}
	var deliveries []struct {
		ID, Status string
		Answer     int
	}
	eventually(t, "the delivery is complete", func() bool {
		return json.Unmarshal([]byte(u.must("subscription", "deliveries", "orders", "-o", "json")), &deliveries) == nil && len(deliveries) == 1 && deliveries[0].Status == "complete"
	})
	if deliveries[0].Answer != http.StatusOK {
		t.Errorf("%+v", deliveries)
	}
	if out := u.must("subscription", "replay", "orders", "--since", "1h"); strings.Count(out, "\n") != 1 {
		t.Errorf("replayed %q", out)
	}
	eventually(t, "it is delivered again", func() bool {
		return json.Unmarshal([]byte(u.must("subscription", "deliveries", "orders", "-o", "json")), &deliveries) == nil && len(deliveries) == 2 &&
			deliveries[0].Status == "complete" && deliveries[1].Status == "complete"
	})
}

// A host reaches no private address for a webhook unless it is allowed, and says which setting would.
func TestWebhookToAPrivateAddress(t *testing.T) { overBoth(t, testWebhookToAPrivateAddress) }

func testWebhookToAPrivateAddress(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL())
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	u.host(folder(t, nil))
	u.must("subscription", "create", "private", "--topic", "t", "--url", server.URL)
	u.must("topic", "publish", "t", "x")
	var shown []struct{ Status, Error string }
	eventually(t, "it failed", func() bool {
		return json.Unmarshal([]byte(u.must("subscription", "deliveries", "private", "-o", "json")), &shown) == nil && len(shown) == 1 && shown[0].Status == "failed"
	})
	if !strings.Contains(shown[0].Error, "--allow-networks") {
		t.Errorf("%+v", shown)
	}
}
