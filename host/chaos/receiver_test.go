package chaos

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// hooked is a subscription with a webhook, and hooking its queue.
const (
	hooked  = "receiver"
	hooking = queue.WebhookQueues + hooked
)

// receiver is a server that gets webhooks, and is no better than others: it refuses some, and drops the connections of others,
// before it has taken them or after.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	random   *rand.Rand     // guarded by mu
	requests int            // guarded by mu
	taken    map[string]int // how often it took which payload, by webhook-id and payload; guarded by mu
}

func newReceiver(t testing.TB, random *rand.Rand) *receiver {
	r := &receiver{random: random, taken: make(map[string]int)}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// subscription delivers to the receiver until it takes a publication.
func (r *receiver) subscription() queue.Subscription {
	return queue.Subscription{
		ID: hooked, Topic: "orders.*", Webhook: &queue.Webhook{URL: r.URL, Timeout: 2 * time.Second},
		Retry: queue.Retry{MaxAttempts: 1000, Base: 50 * time.Millisecond, Min: 50 * time.Millisecond, Max: 500 * time.Millisecond},
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	payload, err := io.ReadAll(request.Body)
	r.mu.Lock()
	fate, takes := r.random.IntN(20), between(r.random, 0, 50*time.Millisecond)
	r.requests++
	if fate > 3 && err == nil {
		r.taken[request.Header.Get("Webhook-Id")+" "+string(payload)]++
	}
	r.mu.Unlock()
	sleep(request.Context(), takes)
	switch fate {
	case 0:
		w.WriteHeader(http.StatusInternalServerError)
	case 1:
		w.WriteHeader(http.StatusNotFound)
	case 2:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case 3, 4: // the host does not hear what became of the fourth
		panic(http.ErrAbortHandler)
	}
}
