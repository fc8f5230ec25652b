package tenant

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A restart of Redis does not end a wait, a longer outage does.
func TestWaitOutage(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	client, err := queue.New(server.URL(), queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	id, err := client.Queue("mail").Enqueue(t.Context(), nil, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wait := func(outage time.Duration) chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := waitTask(t.Context(), admin.NewDirect(client, nil), id, time.Minute, outage)
			ended <- err
		}()
		require.Eventually(t, func() bool {
			channel := queue.DefaultTenant + "_done_" + id
			waiting, err := server.Client(t).PubSubNumSub(t.Context(), channel).Result()
			return err == nil && waiting[channel] > 0
		}, 2*time.Minute, 5*time.Millisecond, "somebody waits for "+id)
		return ended
	}

	ended := wait(300 * time.Millisecond)
	server.Kill()
	var stderr strings.Builder
	status := cli.Report(<-ended, &stderr)
	want := regexp.MustCompile("^quern: cannot wait for task " + id + ", Redis has been away for 300ms: .*refused: continue with `quern task wait " + id + "`\n$")
	if status != cli.ExitRefused || !want.MatchString(stderr.String()) {
		t.Errorf("exit %d: %s", status, &stderr)
	}

	server.Restart(t)
	ended = wait(time.Minute)
	server.Restart(t)
	if _, err := client.Queue("mail").Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
