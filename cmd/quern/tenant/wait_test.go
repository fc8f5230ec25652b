package tenant

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
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

// Each failed attempt that was tried again has one line, however late the command looks.
func TestNoteFailures(t *testing.T) {
	t.Parallel()
	again := func(run int64) admin.Attempt {
		return admin.Attempt{Run: run, Ended: float64(run), Outcome: "retry", Error: &queue.Failure{Reason: "error", Message: fmt.Sprintf("no ink %d\nmore", run)}}
	}
	ended := admin.Attempt{Run: 4, Outcome: "failed"}
	lines := func(from, to int, next string) (text string) {
		for n := from; n <= to; n++ {
			text += fmt.Sprintf("quern: attempt %d of task a failed: (error) no ink %d…", n, n)
			if n == to {
				text += next
			}
			text += "\n"
		}
		return text
	}
	for name, tt := range map[string]struct {
		task admin.Task
		told int
		want string
		now  int
	}{
		"none": {task: admin.Task{Status: queue.Complete, Run: 1, Attempts: 1, History: []admin.Attempt{{Run: 1, Outcome: "complete"}}}},
		"two at once, the next one is due": {
			admin.Task{Status: queue.Scheduled, Run: 2, Attempts: 2, ETA: 3.4, History: []admin.Attempt{again(1), again(2)}},
			0,
			lines(1, 1, "; the next one in 0.0 s") + lines(2, 2, "; the next one in 1.4 s"), 2,
		},
		"with a place": {
			admin.Task{Status: queue.Started, Run: 2, Attempts: 1, ReservedAt: 3.5, History: []admin.Attempt{{
				Run: 1, Ended: 1, Outcome: "retry", Error: &queue.Failure{Reason: "error", Message: "Error: mine\n    at run (handler.ts:6:9)\n    at b"},
			}}},
			0, "quern: attempt 1 of task a failed: (error) Error: mine at run (handler.ts:6:9); the next one in 2.5 s\n", 1,
		},
		"with frames": {
			admin.Task{Status: queue.Complete, Run: 2, Attempts: 2, History: []admin.Attempt{{
				Run: 1, Ended: 1, Outcome: "retry", Error: &queue.Failure{Reason: "trap", Message: "trap: unreachable", Backtrace: []string{"main.go:7 in run"}},
			}, {Run: 2, Outcome: "complete", DelaySeconds: 0.25}}},
			0, "quern: attempt 1 of task a failed: (trap) trap: unreachable at main.go:7 in run; the next one in 0.2 s\n", 1,
		},
		"one was told": {admin.Task{Status: queue.Started, Run: 3, Attempts: 2, History: []admin.Attempt{again(1), again(2)}}, 1, lines(2, 2, ""), 2},
		"failed":       {admin.Task{Status: queue.Failed, Run: 4, Attempts: 4, History: []admin.Attempt{again(1), again(2), again(3), ended}}, 1, lines(2, 2, "; the next one in 0.0 s") + lines(3, 3, "; the next one in 0.0 s"), 3},
		"cancelled while it waited": {
			admin.Task{Status: queue.Failed, Run: 1, Attempts: 1, History: []admin.Attempt{again(1), {Run: 1, Outcome: "failed"}}}, 0, lines(1, 1, ""), 1,
		},
		"retried by hand since": {admin.Task{Status: queue.Pending, Run: 3, History: []admin.Attempt{again(1), again(2), {Run: 3, Outcome: "failed"}}}, 0, "", 0},
	} {
		var said strings.Builder
		cmd := &cobra.Command{}
		cmd.SetErr(&said)
		tt.task.ID = "a"
		if now := noteFailures(cmd, &tt.task, tt.told); now != tt.now || said.String() != tt.want {
			t.Errorf("%s: told %d, want %d:\n%s\nwant\n%s", name, now, tt.now, said.String(), tt.want)
		}
	}
}

// A task that puts itself off is told at the first time, at the third, and at 10, 100 and so on, however late the command looks.
func TestPutOff(t *testing.T) {
	t.Parallel()
	told, said := 0, []int{}
	for _, times := range []int{0, 1, 2, 3, 4, 9, 10, 11, 99, 250, 999, 1000} {
		text := putOff(&admin.Task{ID: "a", Reschedules: times}, told)
		if text == "" {
			continue
		}
		if many := strings.Contains(text, fmt.Sprintf("put itself off %d times", times)); many != (times >= 3) {
			t.Errorf("%d: %s", times, text)
		}
		told, said = times, append(said, times)
	}
	if want := []int{1, 3, 10, 250, 1000}; !slices.Equal(said, want) {
		t.Errorf("told at %v, want %v", said, want)
	}
}

// A task whose database does not serve has asked for nothing: the advice is about the database.
func TestPutOffByTheHost(t *testing.T) {
	t.Parallel()
	code := 1
	task := &admin.Task{ID: "a", Reschedules: 1, LastError: &queue.Failure{Reason: queue.ReasonError, Message: "unavailable: the host's log says more", ExitCode: &code}}
	text := putOff(task, 0)
	if !strings.HasPrefix(text, "the host has put task a off (1 so far)") || !strings.Contains(text, "make the database serve") || strings.Contains(text, "let the handler fail") {
		t.Error(text)
	}
	if task.Reschedules = 2; putOff(task, 1) != "" {
		t.Error("told again")
	}
	code = listen.ExitLater
	if text := putOff(task, 0); !strings.Contains(text, "let the handler fail") {
		t.Error(text)
	}
}
