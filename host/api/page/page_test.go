package page_test

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// fleet fills a tenant with something for each view, and returns a failed and a running task.
func fleet(t *testing.T, w *world) (bad, running string) {
	t.Helper()
	digest := strings.Repeat("a1", 32)
	node := w.node(t, []upkeep.PluginInfo{
		{Tenant: w.Tenant(), Plugin: "mail", Version: "1.4.0", Digest: digest, Queues: []string{"mail"}, State: "serving"},
		{Tenant: w.Tenant(), Plugin: "resize", State: "refused", Error: "resize.yaml: memory: 9 GiB is above the ceiling of 4 GiB"},
	}, "mail", "reports", "orders-index", "webhook.partner")
	for range 12 {
		w.enqueue(t, "mail", `{"to":"ada@example.com","template":"welcome"}`, queue.Options{Labels: map[string]string{"campaign": "autumn"}})
		w.run(t, node, "mail", complete(`{"sent":true}`))
	}
	bad = w.enqueue(t, "mail", `{"to":"bob@example.com"}`, queue.Options{Key: "bob"})
	w.run(t, node, "mail", failed("connect to the mail server: refused"), "dialing", "refused")
	running = w.enqueue(t, "reports", "all", queue.Options{})
	task := w.run(t, node, "reports", nil, "reading 40 files")
	must(t, node.Progress(w.ctx, []listen.ProgressReport{{Claim: task.Claim(), Queue: "reports", Fraction: 0.4, Message: "16 of 40 files"}})[0])
	for range 3 {
		w.enqueue(t, "stuck", "waits", queue.Options{})
	}
	w.enqueue(t, "reports", "part", queue.Options{ID: "part-1", Parent: running, Delay: time.Hour})
	w.enqueue(t, "reports", "sum", queue.Options{ID: "sum-1", After: []string{running}})
	w.enqueue(t, "paused", "waits", queue.Options{})
	must(t, w.Queue("paused").Pause(w.ctx))
	var waits listen.Waits
	for _, wait := range []time.Duration{20 * time.Millisecond, 40 * time.Millisecond, 3 * time.Second} {
		waits.Add(wait)
	}
	must(t, node.Tally(w.ctx, []listen.Tally{
		{Queue: "mail", Plugin: "mail", Digest: digest, Complete: 12, Failed: 30, Waits: waits},
		{Queue: "mail", Plugin: "mail", Digest: strings.Repeat("b2", 32), Complete: 40},
	}))
	w.past(t)
	_, err := w.PutSchedule(w.ctx, queue.Schedule{ID: "nightly", Queue: "reports", Cron: "30 6 * * MON-FRI", Timezone: "Europe/Berlin"}, false)
	must(t, err)
	_, err = w.Subscribe(w.ctx, queue.Subscription{ID: "index", Topic: "orders.*", Queue: "orders-index", Filter: queue.Filter{Attributes: map[string]string{"tenant": "acme"}}})
	must(t, err)
	_, err = w.Subscribe(w.ctx, queue.Subscription{ID: "partner", Topic: "orders.*", Webhook: &queue.Webhook{URL: "https://partner.example/hook", Secrets: []string{"webhook.partner"}}})
	must(t, err)
	_, err = w.Publish(w.ctx, "orders.made", []byte(`{"total": 12}`), queue.PublishOptions{ID: "order-7", Attributes: map[string]string{"tenant": "acme"}})
	must(t, err)
	must(t, manage.New(w.Client).Audit(w.ctx, manage.AuditEntry{Who: "ada", Action: "pause-queue", On: "queue paused", From: "127.0.0.1", Status: 200}))
	w.canary(t)
	must(t, listen.NewRelayClient(w.Client).Publish(w.ctx, listen.RelayState{
		Name: "db.internal:5432/shop", Table: "outbox", Leader: "db-1 4711 8f0c3d21", Since: float64(time.Now().Unix() - 7200), Notified: true, Lag: 0.2, Waiting: 3,
	}))
	return bad, running
}

// past is what was counted in the hours before.
func (w *world) past(t *testing.T) {
	t.Helper()
	now, err := w.Clock(w.ctx)
	must(t, err)
	for ago := 12; ago < 170; ago++ {
		n := 240 + 120*math.Sin(float64(ago)/25) + float64(ago*37%60)
		counts := map[string]any{}
		for _, of := range []string{"", " mail"} {
			counts["complete"+of], counts["failed"+of], counts["wait"+strconv.Itoa(6+ago%40/12)+of] = int(n), max(0, 40-ago), int(n)
		}
		must(t, w.rdb.HSet(w.ctx, fmt.Sprintf("%s_minute_%d", w.Tenant(), now.Unix()/60-int64(ago)), counts).Err())
	}
}

// Every view shows what there is, breaks no rule of accessibility, and is as readable on a phone.
func TestViews(t *testing.T) {
	w := setup(t)
	bad, running := fleet(t, w)
	for _, view := range []struct {
		name, place, heading string
		picture              string
		texts                []string
	}{
		{"overview", "", "Overview", "page.png", []string{"3 tasks wait in the queue stuck, which nobody serves", "the queue paused is paused", "30 runs of the queue mail failed", "wait (p95): at most", "421 / min", "1 of 8", "db.internal:5432/shop", "leads for 2 h"}},
		{"queues", "/queues", "Queues", "", []string{"mail", "reports", "nobody serves it", "6 queues"}},
		{"queue", "/queues/mail", "Queue mail", "page-queue.png", []string{"30 runs of the queue mail failed", "Failed since the queue exists", "trap", "complete (12)", "connect to the mail server: refused", "campaign=autumn"}},
		{"queue", "/queues/stuck", "Queue stuck", "", []string{"None: no host with a plugin for it runs", "pending (3)"}},
		{"task", "/tasks/" + bad, "Task " + bad, "page-task.png", []string{"main.deliver", "dialing", "bob@example.com", "The task is failed: the log is complete.", "a1a1a1a1a1a1"}},
		{"running", "/tasks/" + running, "Task " + running, "", []string{"40 % 16 of 40 files", "reading 40 files", "running", "part-1 scheduled in reports", "sum-1 waits for it scheduled in reports, 0 of 1 ended"}},
		{"search", "/search?status=failed", "Search", "", []string{"connect to the mail server", "Retry all failed ones"}},
		{"dead", "/dead", "Dead letters", "", []string{"Each stands for a task that failed for good"}},
		{"nodes", "/nodes", "Nodes", "", []string{"alive", "quern 1.2.3", "1 of 8", running}},
		{"plugins", "/plugins", "Plugins", "", []string{"71.4 %", "0.0 %", "replaced", "above the ceiling", "1.4.0", "directory"}},
		{"releases", "/plugins/mail", "Plugin mail", "", []string{
			"1 (1.0.0)", "2 (1.1.0)", "10 % until 500 tasks have ended (step 1 of 2)", "canary", "serving", "the first",
			"5.0 %", "0.5 %", "trap: 2", "Promote", "Halt", "Freeze",
		}},
		{"releases of none", "/plugins/resize", "Plugin resize", "", []string{"hosts serve this plugin from their plugin directories"}},
		{"jobs", "/jobs", "Jobs", "", []string{"None in the last week"}},
		{"topics", "/topics", "Topics", "", []string{"orders.made", "orders.*", "tenant=acme", "https://partner.example/hook", "active"}},
		{"topic", "/topics/orders.made", "Topic orders.made", "", []string{"2 of 2", "index", "order-7", "published"}},
		{"subscription", "/subscriptions/partner", "Subscription partner", "", []string{"POST https://partner.example/hook", "webhook.partner", "pending"}},
		{"publication", "/publications/order-7", "Publication order-7", "", []string{"tenant=acme", "orders-index", "pending", `{"total": 12}`}},
		{"flow", "/tasks/sum-1", "Task sum-1", "", []string{"Waits for 1 task", "Until all are complete: 0 ended", "goes on"}},
		{"schedule", "/schedules/nightly", "Schedule nightly", "", []string{"30 6 * * MON-FRI", "Europe/Berlin", "hand", "Its tasks"}},
		{"store", "/store", "Store", "", []string{"The buckets"}},
		{"audit", "/audit", "Audit", "", []string{"pause-queue", "queue paused", "ada"}},
		{"schedules", "/schedules", "Schedules", "", []string{"nightly", "30 6 * * MON-FRI", "Europe/Berlin", "Run now", "Make a schedule"}},
		{"nowhere", "/nowhere", "Nothing here", "", []string{"choose one above"}},
	} {
		w.goTo(t, view.place, view.heading)
		w.see(t, view.texts...)
		w.accessible(t, view.name)
		w.fits(t, view.name)
		if *update && view.picture != "" {
			w.picture(t, view.picture)
		}
	}
}

// update makes TestViews write the pictures of the manual.
var update = flag.Bool("update", false, "write the pictures of the manual")

// picture writes what the window shows, with few colors to be small.
func (w *world) picture(t *testing.T, name string) {
	t.Helper()
	height := int64(750)
	w.do(t, scheming("light"), chromedp.EmulateViewport(1000, height))
	if name == "page.png" {
		height = evaluate[int64](t, w, `document.documentElement.scrollHeight`)
		w.do(t, chromedp.EmulateViewport(1000, height))
	}
	shot, err := chromedp.Run(w.window, chromedp.CaptureScreenshot())
	must(t, err)
	full, err := png.Decode(bytes.NewReader(shot))
	must(t, err)
	seen := map[color.Color]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			seen[full.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(seen), func(a, b color.Color) int { return seen[b] - seen[a] })
	small := image.NewPaletted(full.Bounds(), colors[:min(64, len(colors))])
	draw.Draw(small, small.Bounds(), full, image.Point{}, draw.Src)
	var text bytes.Buffer
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&text, small))
	must(t, os.WriteFile(filepath.Join("..", "..", "..", "cmd", "quern", "manual", name), text.Bytes(), 0o644))
}

// accessible checks the page by the rules of axe-core, light and dark.
func (w *world) accessible(t *testing.T, name string) {
	t.Helper()
	rules, err := os.ReadFile(filepath.Join("..", "..", "..", "build", "npm", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		runtimetest.Missing(t, "left out, there is no axe-core: run make deps")
	}
	if !evaluate[bool](t, w, `typeof axe !== "undefined"`) {
		w.do(t, chromedp.Evaluate[chromedp.Void](string(rules)+";0"))
	}
	for scheme, options := range map[string]string{"light": "", "dark": `{runOnly: ["color-contrast"]}`} { // the rest is the same
		w.do(t, scheming(scheme))
		for _, rule := range evaluate[[]string](t, w,
			`axe.run(`+options+`).then((found) => found.violations.flatMap((v) => v.nodes.map((n) => v.id + " " + n.target + ": " + n.failureSummary)))`) {
			t.Errorf("%s, %s: %s", name, scheme, rule)
		}
	}
}

// fits checks that nothing is cut off on a screen of 320 pixels, which is one of 1280 at 400 %.
func (w *world) fits(t *testing.T, name string) {
	t.Helper()
	w.do(t, chromedp.EmulateViewport(320, 640))
	width := evaluate[float64](t, w, `document.documentElement.scrollWidth`)
	w.do(t, chromedp.EmulateViewport(1000, 900))
	if hidden := evaluate[float64](t, w, `Math.max(0, ...[...document.querySelectorAll(".scroll")].map((s) => s.scrollWidth - s.clientWidth))`); hidden > 0 && slices.Contains([]string{"overview", "queues", "queue"}, name) {
		t.Errorf("%s has a table with %g pixels hidden in a window of 1000", name, hidden)
	}
	w.do(t, chromedp.EmulateViewport(1280, 900))
	if width > 320 {
		t.Errorf("%s is %g pixels wide on a phone of 320", name, width)
	}
}

// The page's files are small, and a browser may neither run nor frame anything else.
func TestFiles(t *testing.T) {
	t.Parallel()
	size := int64(0)
	files, err := filepath.Glob("*.*")
	must(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, ".go") {
			continue
		}
		info, err := os.Stat(name)
		must(t, err)
		size += info.Size()
		if strings.HasSuffix(name, ".js") {
			source, err := os.ReadFile(name)
			must(t, err)
			text := string(source)
			for _, way := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
				if strings.Contains(text, way) {
					t.Errorf("%s uses %s: texts of others must become text nodes", name, way)
				}
			}
		}
	}
	if size == 0 || size > 150_000 {
		t.Errorf("the page has %d bytes, want at most 150,000", size)
	}
}
