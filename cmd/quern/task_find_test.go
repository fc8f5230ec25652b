package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// The beginning of an ID that Quern made stands for it wherever a task is named, if it is long enough and no other task's.
func TestTaskByPrefix(t *testing.T) { overBoth(t, testTaskByPrefix) }

func testTaskByPrefix(t *testing.T, by over) {
	server := queuetest.Start(t)
	u := by.user(t, server.URL())
	const digits = "0123456789012345678901234567890123456789"
	const one, two, dead, delivery = "0a1b2c3d-0001-4000-8000-000000000000", "0a1b2c3d-0002-4000-8000-000000000000", "dead-" + digits, "pub-" + digits
	for _, id := range []string{one, two, "order-1000"} {
		u.must("enqueue", "mail", "--id", id, "--delay", "1h")
	}
	for _, id := range []string{dead, delivery} { // which only failures and publications make
		rdb := server.Client(t)
		err := errors.Join(rdb.Copy(t.Context(), "blueque_task_"+one, "blueque_task_"+id, 0, false).Err(), rdb.ZAdd(t.Context(), "blueque_tasks_mail", redis.Z{Member: id}).Err())
		if err != nil {
			t.Fatal(err)
		}
	}
	for prefix, want := range map[string]string{
		"0a1b2c3d-0001": one, two: two, "dead-0123": dead, "pub-0123": delivery, delivery[:43]: delivery, "order-1000": "order-1000",
		"0a1b2c3": "no such task", "0a1b2c3d": "several tasks begin with 0a1b2c3d: " + one + ", " + two, "ffffffff": "no such task",
		"order-100":    "no such task", // it was one of the user's own, maybe
		one[:35] + "1": "no such task",
	} {
		if r := u.run("task", "show", prefix); !strings.Contains(r.stdout+r.stderr, want) {
			t.Errorf("%s: %+v, expected %q", prefix, r, want)
		}
	}
	u.must("task", "cancel", "0a1b2c3d-0002")
	u.must("task", "logs", "0a1b2c3d-0002")
	if r := u.run("task", "wait", "0a1b2c3d-0002"); r.status != exitFailed || !strings.HasPrefix(r.stderr, "task "+two+" failed (cancelled)") {
		t.Errorf("%+v", r)
	}
	u.must("task", "delete", "0a1b2c3d-0002")
	u.must("task", "show", "0a1b2c3d") // the other one, alone now
}

// Tasks are found by what they are, in a queue and across queues.
func TestTaskLsFilters(t *testing.T) { overBoth(t, testTaskLsFilters) }

func testTaskLsFilters(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL())
	plugins := folder(t, map[string][]byte{"exit": runtimetest.Exit(t), "echo": runtimetest.Echo(t), "trap": runtimetest.Trap(t)})
	write(t, filepath.Join(plugins, "exit.yaml"), "name: exit\nversion: 1.0.0\n")
	u.host(plugins)
	u.run("enqueue", "exit", "7 Connection refused", "--wait", "--id", "refused", "--key", "ada", "--label", "a=b")
	u.run("enqueue", "exit", "7 other", "--wait", "--id", "other", "--key", "ada")
	u.run("enqueue", "trap", "unreachable", "--wait", "--id", "trapped")
	u.must("enqueue", "echo", "x", "--wait", "--id", "fine")
	u.must("enqueue", "echo", "x", "--delay", "1h", "--id", "later")
	var tasks []struct{ ID, Node string }
	if err := json.Unmarshal([]byte(u.must("task", "ls", "echo", "--status", "complete", "-o", "json")), &tasks); err != nil || len(tasks) != 1 {
		t.Fatal(tasks, err)
	}
	node := tasks[0].Node
	for filters, want := range map[string][]string{
		"":                               {"later", "fine", "trapped", "other", "refused"},
		"--limit 2":                      {"later", "fine"},
		"--limit 2 --offset 3":           {"other", "refused"},
		"exit":                           {"other", "refused"},
		"--status failed":                {"trapped", "other", "refused"},
		"--reason trap":                  {"trapped"},
		"--reason error --error REFUSED": {"refused"},
		"--plugin exit":                  {"other", "refused"},
		"--key ada --label a=b":          {"refused"},
		"exit --key ada --error other":   {"other"},
		"--newer-than 1h --plugin echo":  {"fine"},
		"--older-than 1h":                nil,
		"echo --node " + node:            {"fine"},
		"--node " + node[:12] + " --status complete": {"fine"},
		"--node nowhere": nil,
	} {
		var got []string
		for _, line := range strings.Split(u.must(append([]string{"task", "list"}, strings.Fields(filters)...)...), "\n")[1:] {
			if fields := strings.Fields(line); len(fields) > 0 {
				got = append(got, fields[0])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, expected %q", filters, got, want)
		}
	}
	if out := u.must("task", "retry", "--queue", "exit", "--error", "refused", "--plugin", "exit", "--newer-than", "1h"); out != "refused\n" {
		t.Errorf("retried %q", out)
	}
}

// --watch prints what has changed; that of a task ends with it.
func TestWatch(t *testing.T) { overBoth(t, testWatch) }

func testWatch(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL())
	u.must("enqueue", "mail", "--id", "one", "--delay", "1h")
	list := u.start("queue", "ls", "-o", "json", "--watch=100ms")
	list.stdout.await(t, regexp.MustCompile(`"scheduled":1`))
	task := u.start("task", "show", "one", "--watch=100ms")
	task.stdout.await(t, regexp.MustCompile(`status +scheduled`))
	u.must("task", "cancel", "one")
	task.stdout.await(t, regexp.MustCompile(`status +failed`))
	if status := task.wait(); status != exitDone {
		t.Errorf("exit %d: %s", status, task.stderr)
	}
	list.stdout.await(t, regexp.MustCompile(`"failed":1`))
	if n := strings.Count(list.stdout.String(), "\n"); n > 3 {
		t.Errorf("%d lines about two changes:\n%s", n, list.stdout)
	}
}

// A shell completes what is in Redis, what a flag can be, and plugins' files.
func TestCompletionOfNames(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	plugins := folder(t, map[string][]byte{"mail": runtimetest.Echo(t)})
	u.host(plugins)
	u.must("enqueue", "mail", "--id", "one", "--wait")
	u.must("enqueue", "post", "--id", "two", "--tenant", "acme")
	u.must("topic", "publish", "orders", "--id", "three")
	u.must("subscription", "create", "copies", "--topic", "orders", "--queue", "mail")
	node := regexp.MustCompile(`"listener":"([^"]+)"`).FindStringSubmatch(u.must("node", "ls", "-o", "json"))[1]
	for line, want := range map[string]string{
		"queue show ":                    "mail\n:4",
		"queue show --tenant acme ":      "post\n:4",
		"subscription show ":             "copies\torders\n:4",
		"subscription deliveries ":       "copies\torders\n:4",
		"topic publish ":                 "orders\n:4",
		"publication show ":              ":4",
		"task show ":                     "one\tmail complete\n:4",
		"task cancel one ":               "one\tmail complete\n:4",
		"enqueue ":                       "mail\n:4",
		"node drain ":                    node + "\n:4",
		"task ls --node ":                node + "\n:4",
		"plugin release ":                "mail\n:4",
		"task ls --status ":              "scheduled\npending\nreserved\nstarted\ncomplete\nfailed\n:4",
		"task retry --queue ":            "mail\n:4",
		"queue ls --tenant ":             "acme\nblueque\n:4",
		"serve --log-level ":             "trace\ndebug\ninfo\nwarn\nerror\n:4",
		"task retry one ":                "one\tmail complete\n:4",
		"plugin test ":                   "wasm\n:8",
		"plugin run ":                    "wasm\n:8",
		"task show --config ":            ":0",
		"plugin build ":                  ":16",
		"plugin new ":                    ":0",
		"task ls --redis redis://x:1/0 ": ":4",
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		if out := u.must(args...); !strings.HasPrefix(out, want+"\n") {
			t.Errorf("%s: %q, expected %q", line, out, want)
		}
	}
}
