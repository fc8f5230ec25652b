package page_test

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// programs is the folder of the program, which TestMain removes.
var programs string

// program is the program as users have it, built once.
var program = sync.OnceValues(func() (path string, err error) {
	if programs, err = os.MkdirTemp("", "quern-page-*"); err != nil {
		return "", err
	}
	path = filepath.Join(programs, "quern")
	said, err := exec.Command("go", "build", "-o", path, "github.com/quern-project/quern/cmd/quern").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build quern: %w: %s", err, said)
	}
	return path, err
})

// host runs `quern serve` for the tenants until the test ends, on the plugins of a folder.
func (w *world) host(t *testing.T, plugins string, tenants []string, args ...string) {
	t.Helper()
	path, err := program()
	must(t, err)
	command := exec.Command(path, append([]string{
		"serve", "--redis", queuetest.Shared(t).URL(), "--tenants", strings.Join(tenants, ","), "--plugins", plugins, "--http", "127.0.0.1:0", "--lease", "2s",
	}, args...)...)
	command.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	var said bytes.Buffer
	command.Stderr = &said
	must(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
		defer kill.Stop()
		_ = command.Wait() // by the signal
		if t.Failed() {
			t.Logf("the host said:\n%s", &said)
		}
	})
}

// operator is somebody who was paged at night, and counts clicks.
type operator struct {
	*world
	began  time.Time
	clicks int
	cause  string // how the cause was found
}

// called opens the page.
func called(t *testing.T, w *world) *operator {
	t.Helper()
	w.do(t, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(w.base))
	w.until(t, `document.querySelector("h1")?.innerText === "Tenants"`)
	o := &operator{world: w, began: time.Now()}
	o.see(t, w.Tenant())
	o.look(t, "tenants")
	return o
}

// look leaves pictures, light, dark and on a phone, if -artifacts keeps them.
func (o *operator) look(t *testing.T, name string) {
	t.Helper()
	if flag.Lookup("test.artifacts").Value.String() != "true" {
		return
	}
	for _, look := range []struct {
		scheme        string
		width, height int64
	}{{"light", 1280, 900}, {"dark", 1280, 900}, {"light", 390, 844}} {
		o.do(t, scheming(look.scheme), chromedp.EmulateViewport(look.width, look.height))
		shot, err := chromedp.Run(o.window, chromedp.CaptureScreenshot())
		must(t, err)
		must(t, os.WriteFile(filepath.Join(t.ArtifactDir(), fmt.Sprintf("%s-%s-%d.png", name, look.scheme, look.width)), shot, 0o600))
	}
	o.do(t, scheming("light"), chromedp.EmulateViewport(1280, 900))
}

func (o *operator) click(t *testing.T, label string) {
	t.Helper()
	o.press(t, label)
	o.clicks++
}

// found is called when the page shows the cause.
func (o *operator) found(t *testing.T, name string, texts ...string) {
	t.Helper()
	o.see(t, texts...)
	if o.clicks > 3 {
		t.Errorf("the cause took %d clicks, want at most 3", o.clicks)
	}
	o.cause = fmt.Sprintf("cause after %d clicks and %.1f s", o.clicks, time.Since(o.began).Seconds())
	o.look(t, name)
}

// ended is called when the remedy has worked.
func (o *operator) ended(t *testing.T) {
	t.Helper()
	if o.clicks > 4 {
		t.Errorf("the remedy took %d clicks, want at most 4", o.clicks)
	}
	t.Logf("%s, ended after %d clicks and %.1f s", o.cause, o.clicks, time.Since(o.began).Seconds())
}

// troubled is a page for two tenants of a fleet, and a client of the second.
func troubled(t *testing.T) (w *world, other *queue.Client) {
	t.Helper()
	w = setup(t, func(c *api.Config) {
		rdb, err := queue.Connect(queuetest.Shared(t).URL())
		must(t, err)
		t.Cleanup(func() { _ = rdb.Close() })
		other, err = queue.NewFromRedis(rdb, queue.Config{Tenant: queuetest.Tenant()})
		must(t, err)
		t.Cleanup(func() { _ = other.Close() })
		c.Clients, c.Stores[other.Tenant()] = append(c.Clients, other), kv.New(rdb, other.Tenant())
	})
	return w, other
}

// plugin writes a plugin and its manifest, each file at once, as a deployment does.
func plugin(t *testing.T, dir, name string, module []byte, manifest string) {
	t.Helper()
	for file, content := range map[string][]byte{name + ".yaml": []byte(manifest), name + ".wasm": module} {
		must(t, os.WriteFile(filepath.Join(dir, "."+file), content, 0o600))
		must(t, os.Rename(filepath.Join(dir, "."+file), filepath.Join(dir, file)))
	}
}

// Tasks went into a queue that nobody serves: its name was misspelled. The operator sees which, and cancels them.
func TestTroubleOfAQueueWithoutListeners(t *testing.T) {
	w, other := troubled(t)
	dir := t.TempDir()
	plugin(t, dir, "mail", runtimetest.Echo(t), "name: mail\n")
	w.host(t, dir, []string{w.Tenant(), other.Tenant()})
	for range 3 {
		w.enqueue(t, "mial", "hello", queue.Options{})
	}
	must(t, w.Queue("mial").SetLimit(w.ctx, 4))
	w.enqueue(t, "mail", "hello", queue.Options{})
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Complete] == 1 })

	o := called(t, w)
	o.see(t, "queue mial", "3 of 4 (75 %)", "none set")
	o.click(t, w.Tenant())
	o.found(t, "listeners", "3 tasks wait in the queue mial, which nobody serves", "put a plugin that serves it, such as mial.wasm")
	o.click(t, "Queue mial")
	o.click(t, "Cancel pending")
	o.click(t, "Cancel 3 tasks")
	w.stats(t, "mial", func(s manage.Stats) bool { return s.Depth[queue.Pending] == 0 && s.Depth[queue.Failed] == 3 })
	o.ended(t)
}

// A handler fails for one tenant and works for another. The operator sees for whom, and with which words; when it is mended the
// failed tasks run again.
func TestTroubleOfOneTenant(t *testing.T) {
	w, other := troubled(t)
	dir := t.TempDir()
	plugin(t, dir, "mail", runtimetest.Exit(t), "name: mail\nversion: 2.0.0\n")
	w.host(t, dir, []string{w.Tenant(), other.Tenant()})
	for range 8 {
		w.enqueue(t, "mail", "65 the account was moved", queue.Options{})
		_, err := other.Queue("mail").Enqueue(w.ctx, []byte("0 sent"), queue.Options{})
		must(t, err)
	}
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Failed] == 8 })
	w.eventually(t, "the failures are counted", func() (bool, error) {
		minutes, err := manage.New(w.Client).Minutes(w.ctx, "mail", 5)
		sum := int64(0)
		for _, m := range minutes {
			sum += m.Failed
		}
		return sum == 8, err
	})

	o := called(t, w)
	o.see(t, "1 error")
	o.click(t, w.Tenant())
	o.see(t, "8 of 8 runs of mail 2.0.0")
	o.click(t, "Its failed tasks")
	o.found(t, "tenant", "the account was moved")
	mended := runtimetest.Echo(t)
	plugin(t, dir, "mail", mended, "name: mail\nversion: 2.0.1\n") // somebody deploys the mended one, whose files come one after the other
	serves := regexp.MustCompile(fmt.Sprintf(`"version":"2.0.1","digest":"sha256:%x"[^}]*"state":"serving"`, sha256.Sum256(mended)))
	w.eventually(t, "the new version serves", func() (bool, error) {
		nodes, err := listen.NewFleet(w.Client).Nodes(w.ctx)
		return len(nodes) == 1 && serves.MatchString(nodes[0].About["plugins"]), err
	})
	o.click(t, "Retry all failed ones")
	o.click(t, "Retry 8 tasks")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Complete] == 8 })
	o.ended(t)
}

// A task holds the memory of a host, and another one waits for it. The operator sees which, and cancels the one.
func TestTroubleOfMemory(t *testing.T) {
	w, other := troubled(t)
	dir := t.TempDir()
	plugin(t, dir, "report", runtimetest.Sleep(t), "name: report\nlimits: {memory: 64MiB}\n")
	plugin(t, dir, "large", runtimetest.Echo(t), "name: large\nlimits: {memory: 64MiB}\n")
	w.host(t, dir, []string{w.Tenant(), other.Tenant()}, "--memory", "96MiB")
	hog := w.enqueue(t, "report", "600000", queue.Options{})
	w.stats(t, "report", func(s manage.Stats) bool { return s.Depth[queue.Started] == 1 })
	waiting := w.enqueue(t, "large", "hello", queue.Options{})
	_, err := other.Queue("large").Enqueue(w.ctx, nil, queue.Options{})
	must(t, err)
	for _, tenant := range []*queue.Client{w.Client, other} { // whoever is the first in line, each is told
		w.eventually(t, "the host waits for memory", func() (bool, error) {
			nodes, err := listen.NewFleet(tenant).Nodes(w.ctx)
			return len(nodes) == 1 && nodes[0].About["waits_for_memory"] == `["large"]`, err
		})
	}
	now, err := w.Clock(w.ctx)
	must(t, err)
	hourAgo := fmt.Sprint(now.Add(-time.Hour).Unix())
	must(t, w.rdb.HSet(w.ctx, w.Tenant()+"_task_"+waiting, "created", hourAgo, "updated", hourAgo).Err())

	o := called(t, w)
	o.click(t, w.Tenant())
	o.see(t, "has no memory left for a task of the queue large")
	o.click(t, "What the hosts run")
	o.found(t, "memory", "out of memory", "for a task of large", " MiB of 96 MiB", hog)
	o.click(t, "Cancel")
	o.click(t, "Cancel the task")
	w.stats(t, "large", func(s manage.Stats) bool { return s.Depth[queue.Complete] == 1 })
	o.ended(t)
}

// A browser shows the page soon after it was asked for: before the first paint it needs two small files, and no answer of the API.
// The times are only told: a busy machine has its own.
func TestFirstPaint(t *testing.T) {
	w := setup(t)
	fleet(t, w)
	var paints, whole []float64
	for range 5 {
		w.do(t, chromedp.Navigate("about:blank"))
		w.do(t, chromedp.Navigate(w.base+"#/"+w.Tenant()))
		w.until(t, `document.querySelector(".findings")`)
		whole = append(whole, evaluate[float64](t, w, `performance.now()`))
		w.until(t, `performance.getEntriesByName("first-contentful-paint").length > 0`)
		paints = append(paints, evaluate[float64](t, w, `performance.getEntriesByName("first-contentful-paint")[0].startTime`))
	}
	const files = `performance.getEntriesByType("resource").filter((r) => !r.name.includes("/v1/"))`
	blocking := evaluate[string](t, w, files+`.filter((r) => r.renderBlockingStatus === "blocking").map((r) => r.name.split("/").pop()).join(" ")`)
	first := evaluate[int](t, w, `performance.getEntriesByType("navigation")[0].decodedBodySize + `+files+`.filter((r) => r.renderBlockingStatus === "blocking").reduce((sum, r) => sum + r.decodedBodySize, 0)`)
	all, read := evaluate[int](t, w, files+`.length`), evaluate[int](t, w, files+`.reduce((sum, r) => sum + r.decodedBodySize, 0)`)
	t.Logf("first contentful paint after %.0f ms, all of the overview after %.0f ms (looked at every 50 ms); it waits for the page and %s, %d bytes; %d files with %d bytes follow it",
		paints, whole, blocking, first, all, read)
	if blocking != "style.css" || first <= 0 || first > 15_000 {
		t.Errorf("the first paint waits for %q of %d bytes, want the page and style.css alone, at most 15,000", blocking, first)
	}
	if all > 12 || read <= 0 || read > 150_000 {
		t.Errorf("the browser read %d files with %d bytes, want at most 12 with 150,000", all, read)
	}
}
