package listen

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

func TestListenerID(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"build-7.example.com": "build-7.example.com", "my_host": "my-host", "my host\n": "my-host-", "": "localhost",
		"a~b": "a~b", "hôte": "h-te", "_": "-", "del\x7f": "del-",
	} {
		id := listenerID(host, 4711)
		if !regexp.MustCompile(`^` + regexp.QuoteMeta(want) + `~[0-9a-f]{8}_4711$`).MatchString(id) {
			t.Errorf("hostname %q: %q", host, id)
		}
		// As Blueque parses it.
		at := strings.LastIndex(id, "_")
		if pid, err := strconv.Atoi(id[at+1:]); err != nil || pid != 4711 || strings.Contains(id[:at], "_") {
			t.Errorf("Blueque cannot parse %q", id)
		}
		if !store.IsQuernListener(id) || strings.ContainsAny(id, " \n") {
			t.Errorf("%q", id)
		}
	}
	client, err := queue.New("redis://127.0.0.1:1", queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if id := New(client).ID(); id == New(client).ID() || !strings.HasSuffix(id, fmt.Sprintf("_%d", os.Getpid())) {
		t.Errorf("twice the same, or not of this process: %q", id)
	}
	for _, id := range []string{"host_1", "host~1_2", "host~0123456g_2", "host~01234567_", "host~01234567_2x"} {
		if store.IsQuernListener(id) {
			t.Errorf("%q counts as Quern's", id)
		}
	}
}
