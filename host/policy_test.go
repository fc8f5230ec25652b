package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

// A policy within bounds is what it was, but for what is beyond them.
func TestBoundedPolicy(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		span := rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(1, 100_000).Draw(t, "s")) * time.Second
		}))
		r := queue.Retry{
			MaxAttempts: rapid.IntRange(-1, 10).Draw(t, "attempts"), MaxReschedules: rapid.IntRange(0, 3000).Draw(t, "reschedules"),
			Base: span.Draw(t, "base"), Min: span.Draw(t, "min"), MaxAge: span.Draw(t, "age"),
		}
		if longest := span.Draw(t, "max"); longest > 0 {
			r.Max = longest + r.Min
		}
		most := manifest.Retry{
			MaxAttempts: rapid.IntRange(0, 10).Draw(t, "most attempts"), MaxReschedules: rapid.IntRange(0, 3000).Draw(t, "most reschedules"),
			Min: span.Draw(t, "least"), MaxAge: span.Draw(t, "most age"),
		}
		got := bounded(r, most)
		smaller := func(asked, most int64) int64 { // of which 0 is no bound
			if most > 0 && (asked <= 0 || asked > most) {
				return most
			}
			return asked
		}
		if want := smaller(int64(r.Attempts()), int64(most.MaxAttempts)); int64(got.Attempts()) != want {
			t.Fatalf("%d attempts, want %d", got.Attempts(), want)
		}
		if want := smaller(int64(r.Reschedules()), int64(most.MaxReschedules)); int64(got.Reschedules()) != want {
			t.Fatalf("%d reschedules, want %d", got.Reschedules(), want)
		}
		if want := smaller(int64(r.MaxAge), int64(most.MaxAge)); int64(got.MaxAge) != want {
			t.Fatalf("an age of %s, want %s", got.MaxAge, time.Duration(want))
		}
		for n := 1; n < 30; n++ {
			if want := max(r.Delay(n), most.Min); got.Delay(n) != want || got.JitteredDelay(n) < max(most.Min, r.Least()) {
				t.Fatalf("the delay after %d is %s, want %s", n, got.Delay(n), want)
			}
		}
	})
}

// What the task itself, its manifest and its handler say of attempts holds within what the host gives the tenant.
func TestPolicyUnderACeiling(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ceiling, input string
		own            queue.Options
		attempts       int
		reschedules    int
		reason         queue.Reason
	}{
		"Manifest":              {"max_attempts: 2", "1", queue.Options{}, 2, 0, queue.ReasonExhausted},
		"Task":                  {"max_attempts: 2", "1", queue.Options{Retry: queue.Retry{MaxAttempts: 9}}, 2, 0, queue.ReasonExhausted},
		"Reschedules":           {"max_reschedules: 3", "75", queue.Options{Retry: queue.Retry{MaxReschedules: 9}}, 1, 3, queue.ReasonExhausted},
		"NoReschedules":         {"max_reschedules: 3", "75", queue.Options{Retry: queue.Retry{MaxReschedules: -1}}, 1, 0, queue.ReasonError},
		"Pause":                 {"min: 1h, max_age: 1m", "1", queue.Options{}, 1, 0, queue.ReasonExpired},
		"PauseOfOne":            {"min: 1h, max_age: 1m", "75", queue.Options{}, 1, 0, queue.ReasonExpired},
		"AgeOfTask":             {"min: 2m, max_age: 1m", "1", queue.Options{Retry: queue.Retry{MaxAttempts: 5, MaxAge: time.Hour}}, 1, 0, queue.ReasonExpired},
		"AgeOfTaskWithDeadline": {"min: 2m, max_age: 1m", "1", queue.Options{Retry: queue.Retry{MaxAttempts: 5, MaxAge: 48 * time.Hour}, Deadline: time.Now().Add(24 * time.Hour)}, 1, 0, queue.ReasonExpired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grants, err := manifest.ParseGrants("g.yaml", fmt.Appendf(nil, `"*": {retry: {%s}}`, tt.ceiling))
			if err != nil {
				t.Fatal(err)
			}
			n := start(t, settings{
				grants: grants, guests: map[string][]byte{"exit": runtimetest.Exit(t)},
				yaml: map[string]string{"exit": "retry: {max_attempts: unlimited, min: 1ms, max: 1ms, max_reschedules: 100}"},
			})
			task := n.wait(n.enqueueAs("exit", tt.input, tt.own))
			if task.Failure().Reason != tt.reason || task.Attempts != tt.attempts || task.Reschedules != tt.reschedules {
				t.Errorf("%d attempts, %d reschedules: %+v", task.Attempts, task.Reschedules, task.Failure())
			}
		})
	}
}

// The most age that the host allows counts anew for a task that somebody retried by hand, also after its first attempt.
func TestAgeCountsFromARetry(t *testing.T) {
	t.Parallel()
	grants, err := manifest.ParseGrants("g.yaml", []byte(`"*": {retry: {max_age: 1h}}`))
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{
		grants: grants, guests: map[string][]byte{"exit": runtimetest.Exit(t)}, yaml: map[string]string{"exit": "retry: {max_attempts: 3, min: 1ms, max: 1ms}"},
	})
	q := n.client.Queue("exit")
	if err := q.Pause(n.ctx); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	id := n.enqueueAs("exit", "1", queue.Options{Retry: queue.Retry{MaxAttempts: 3, MaxAge: 48 * time.Hour}, Deadline: now.Add(24 * time.Hour)})
	if err := n.rdb.HSet(n.ctx, n.tenant+"_task_"+id, "created", now.Add(-2*time.Hour).Unix(), "retried_at", now.Unix()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := q.Resume(n.ctx); err != nil {
		t.Fatal(err)
	}
	if task := n.wait(id); task.Failure().Reason != queue.ReasonExhausted || task.Attempts != 3 {
		t.Errorf("%d attempts: %+v", task.Attempts, task.Failure())
	}
}

// A task whose input is over what the host gives says so, also if the input is so large that it is not fetched.
func TestInputUnderACeiling(t *testing.T) {
	t.Parallel()
	grants, err := manifest.ParseGrants("g.yaml", []byte(`"*": {limits: {input: 1KiB}}`))
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{grants: grants, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	for _, size := range []int{2 << 10, 200 << 10} {
		task := n.wait(n.enqueueAs("echo", strings.Repeat("x", size), queue.Options{}))
		if message := task.Failure().Message; !strings.Contains(message, "g.yaml") || strings.Contains(message, "manifest") {
			t.Errorf("%d bytes: %q does not say whose limit it is", size, message)
		}
	}
}
