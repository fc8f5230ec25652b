package page_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// hostile is what nobody should write into a task.
const hostile = `<img src=x onerror="hacked=1"><script>hacked=1</script>"'` + "`${hacked=1}" + "\x00\x1b[31m\u202etxt.exe\u200b"

const hostileID = `<b>'"&%2f..`

// Whatever producers and handlers write is shown as text, and harms neither the page nor the other texts on it.
func TestHostile(t *testing.T) {
	w := setup(t)
	name := `<script>hacked=1</script>/../%2e"'`
	node := w.node(t, []upkeep.PluginInfo{{Plugin: hostile, Version: hostile, Digest: hostile, State: hostile, Error: hostile, Queues: []string{hostile}}}, name)
	bad := w.enqueue(t, name, hostile, queue.Options{Key: hostile, Labels: map[string]string{hostile: hostile}, ID: hostileID})
	w.run(t, node, name, failed(hostile), hostile, strings.Repeat("long", 4000))
	long := w.enqueue(t, name, strings.Repeat("x", 1<<20), queue.Options{Parent: `javascript:hacked=1`})
	w.run(t, node, name, complete("\x89PNG\r\n\x1a\n"+hostile+"\xff"))
	waits := w.enqueue(t, name, `{"a": [1, "`+strings.Repeat("é", 10)+`"]}`, queue.Options{})
	_, err := w.PutSchedule(w.ctx, queue.Schedule{ID: "s", Queue: name, Cron: "@yearly", Parameters: []byte(hostile), Options: queue.Options{Labels: map[string]string{hostile: hostile}}}, false)
	must(t, err)
	_, err = w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "t", Queue: name})
	must(t, err)
	_, err = w.ChangeSubscription(w.ctx, "s", func(s *queue.Subscription) error { s.Active, s.Reason = false, hostile; return nil })
	must(t, err)
	_, err = w.Publish(w.ctx, "t", []byte(hostile), queue.PublishOptions{ID: hostileID, Attributes: map[string]string{"type": `<script>hacked=1</script>"'`}})
	must(t, err)
	must(t, manage.New(w.Client).Audit(w.ctx, manage.AuditEntry{Who: hostile, Action: hostile, On: hostile, From: hostile, Detail: hostile}))

	w.do(t, chromedp.Navigate(w.base))
	w.see(t, "Overview")
	for _, view := range []struct {
		view  []string
		texts []string
	}{
		{[]string{""}, []string{name}},
		{[]string{"queues"}, []string{name}},
		{[]string{"queues", name}, []string{name, "pending (1)", `<script>hacked=1</script>"'`, "⟨202e⟩txt.exe⟨200b⟩"}},
		{[]string{"tasks", bad}, []string{bad, "⟨0000⟩", "⟨001b⟩[31m", "⟨202e⟩", "longlong", "panic: <img"}},
		{[]string{"tasks", long}, []string{"Read 1 MiB", "javascript:hacked=1", "Picture", "Download"}},
		{[]string{"tasks", waits}, []string{`{"a": [1, "éééééééééé"]}`}},
		{[]string{"plugins"}, []string{`<script>hacked=1</script>`}},
		{[]string{"nodes"}, []string{name}},
		{[]string{"audit"}, []string{`<script>hacked=1</script>`}},
		{[]string{"search?error=script"}, []string{bad}},
		{[]string{"schedules", "s"}, []string{`<script>hacked=1</script>"'`, "⟨202e⟩txt.exe⟨200b⟩", name}},
		{[]string{"topics"}, []string{`<script>hacked=1</script>`, name}},
		{[]string{"topics", "t"}, []string{hostileID}},
		{[]string{"subscriptions", "s"}, []string{`<script>hacked=1</script>"'`, "⟨202e⟩txt.exe⟨200b⟩"}},
		{[]string{"publications", hostileID}, []string{`<script>hacked=1</script>"'`, "⟨202e⟩txt.exe⟨200b⟩"}},
	} {
		w.do(t, chromedp.Evaluate[chromedp.Void](`location.hash = "#/" + [`+quoted(w.Tenant())+`, ...`+array(view.view)+`].map((word) => word.includes("?") ? word : encodeURIComponent(word)).join("/")`))
		w.see(t, view.texts...)
		w.fits(t, strings.Join(view.view, " "))
	}
	w.do(t, chromedp.Evaluate[chromedp.Void](`location.hash = "#/`+w.Tenant()+`/tasks/`+long+`"`))
	w.press(t, "Read 1 MiB")
	w.see(t, "The first 64 KiB of 1 MiB")
	w.press(t, "Hex")
	w.see(t, "000000  78 78 78 78")
	w.do(t, chromedp.Evaluate[chromedp.Void](`location.hash = "#/`+w.Tenant()+`/tasks/`+waits+`"`))
	w.see(t, "éé")
	w.press(t, "JSON")
	w.see(t, "  \"a\": [\n    1,")
	if evaluate[string](t, w, `typeof hacked`) != "undefined" {
		t.Error("a text has run as a script")
	}
}

func array(words []string) string {
	quotes := make([]string, len(words))
	for i, word := range words {
		quotes[i] = quoted(word)
	}
	return "[" + strings.Join(quotes, ",") + "]"
}

// A queue of 100,000 tasks takes no longer to show than a short one: each view reads a page.
func TestManyTasks(t *testing.T) {
	w := setup(t)
	specs := make([]queue.Spec, 1000)
	for i := range specs {
		specs[i] = queue.Spec{Parameters: []byte("x")}
	}
	for range 100 {
		_, err := w.Queue("many").EnqueueMany(w.ctx, specs)
		must(t, err)
	}
	w.goTo(t, "", "Overview")
	w.see(t, "100,000")
	w.goTo(t, "/queues/many", "Queue many")
	w.see(t, "pending (100,000)")
	if rows := evaluate[int](t, w, `document.querySelectorAll("tbody tr").length`); rows != 50 {
		t.Errorf("%d rows, want a page of 50", rows)
	}
	first := evaluate[string](t, w, `document.querySelector("tbody a").innerText`)
	w.press(t, "Next page")
	w.until(t, `document.querySelectorAll("tbody tr").length === 50 && document.querySelector("tbody a").innerText !== `+quoted(first))
	w.goTo(t, "/search?error=none", "Search")
	w.see(t, "This is not all: the search ended early", "None in the part that was searched.")
	w.press(t, "Search on")
	w.see(t, "First page")
}

// The page follows what happens, says when Redis is away, and goes on when it is back.
func TestOutage(t *testing.T) {
	t.Parallel()
	proxy := queuetest.NewProxy(t, queuetest.Shared(t))
	w := serve(t, proxy.URL()+"?dial_timeout=200ms&max_retries=-1")
	w.enqueue(t, "mail", "x", queue.Options{})
	w.goTo(t, "/queues", "Queues")
	w.see(t, "1 queue")
	w.enqueue(t, "other", "x", queue.Options{})
	w.see(t, "2 queues")
	proxy.Refuse()
	w.see(t, "Redis is not available", "Trying again; what is shown may be old.", "2 queues")
	w.goTo(t, "/schedules", "Schedules")
	w.see(t, "Nothing of this view has been read yet.", "Redis is not available")
	proxy.Pass()
	w.see(t, "None: the button makes one")
	w.goTo(t, "/queues", "Queues")
	w.until(t, `document.querySelector("#trouble").innerText === ""`)
	w.enqueue(t, "third", "x", queue.Options{})
	w.see(t, "3 queues")
	w.goTo(t, "/queues/other", "Queue other")
	w.press(t, "Enqueue")
	w.fill(t, "parameters", "precious")
	proxy.CutReplies(1, "precious")
	w.press(t, "Enqueue it")
	w.see(t, "Redis is not available: try again. It may have been done all the same.")
	w.press(t, "Enqueue it")
	w.see(t, "It was enqueued before")
	w.stats(t, "other", func(s manage.Stats) bool { return s.Depth[queue.Pending] == 2 })
}

// The page says when its server is away, and goes on with the next one.
func TestServerAway(t *testing.T) {
	w := setup(t)
	node := w.node(t, nil, "mail")
	id := w.enqueue(t, "mail", "x", queue.Options{})
	task := w.run(t, node, "mail", nil, "first line")
	w.goTo(t, "/tasks/"+id, "Task "+id)
	w.see(t, "first line")
	w.stop()
	w.see(t, "Quern does not answer", "Trying again", "Task "+id)
	w.listen(t, strings.TrimSuffix(strings.TrimPrefix(w.base, "http://"), "/"))
	w.until(t, `document.querySelector("#trouble").innerText === ""`)
	must(t, node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: task.Claim(), Lines: []string{"second line"}}})[0])
	w.see(t, "second line")
	if lines := evaluate[int](t, w, `document.querySelectorAll(".log li").length`); lines != 2 {
		t.Errorf("%d lines, want each once", lines)
	}
}

// A running task is followed: its progress, the lines of its log, its end.
func TestLiveTask(t *testing.T) {
	w := setup(t)
	node := w.node(t, nil, "mail")
	id := w.enqueue(t, "mail", "x", queue.Options{})
	task := w.run(t, node, "mail", nil, "first line")
	w.goTo(t, "/tasks/"+id, "Task "+id)
	w.see(t, "first line", "Following the log")
	must(t, node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: task.Claim(), Lines: []string{"second line"}}})[0])
	must(t, node.Progress(w.ctx, []listen.ProgressReport{{Claim: task.Claim(), Queue: "mail", Fraction: 0.7, Message: "almost"}})[0])
	w.see(t, "second line", "70 % almost")
	w.do(t, chromedp.Evaluate[chromedp.Void](`getSelection().selectAllChildren(document.querySelector("h1"))`))
	hide := `Object.defineProperty(document, "hidden", { value: %t, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`
	w.do(t, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(hide, true)))
	w.until(t, `performance.getEntriesByType("resource").some((one) => one.name.endsWith("log/stream"))`) // it has ended
	w.do(t, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(hide, false)))
	errs, err := node.Settle(w.ctx, "mail", []listen.Settlement{{Claim: task.Claim(), Result: []byte(`{"sent": true}`)}})
	must(t, errors.Join(append(errs, err)...))
	w.see(t, "The task is complete: the log is complete.", `{"sent": true}`)
	if evaluate[string](t, w, `getSelection().toString()`) != "Task "+id {
		t.Error("a refresh loses the selection")
	}
	if lines := evaluate[int](t, w, `document.querySelectorAll(".log li").length`); lines != 2 {
		t.Errorf("%d lines, want 2", lines)
	}
}

// The keyboard leads through the page: a link to the content, keys for the views, a dialog that Escape closes.
func TestKeyboard(t *testing.T) {
	w := setup(t)
	w.enqueue(t, "mail", "x", queue.Options{})
	w.goTo(t, "", "Overview")
	w.until(t, `document.activeElement === document.querySelector("h1")`)
	w.do(t, chromedp.KeyEvent("gq"))
	w.until(t, `document.querySelector("h1").innerText === "Queues"`)
	w.do(t, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error { // KeyEvent would insert the / all the same
		_, err := chromedp.Call(ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Text: "/"})
		return err
	}), chromedp.KeyEvent("ai"))
	w.until(t, `document.querySelector("input").value === "ai"`)
	w.see(t, "1 queue")
	w.do(t, chromedp.KeyEvent("\x1b"), chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`), chromedp.KeyEvent("?"))
	w.until(t, `document.querySelector("dialog").open`)
	w.do(t, chromedp.KeyEvent("\x1b"))
	w.until(t, `!document.querySelector("dialog").open`)
	w.goTo(t, "/queues/mail", "Queue mail")
	w.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("main button").focus()`), chromedp.KeyEvent("\r"))
	w.see(t, "Pause mail?")
	if !evaluate[bool](t, w, `document.querySelector("dialog").contains(document.activeElement)`) {
		t.Error("the focus is not in the dialog")
	}
	w.do(t, chromedp.Evaluate[chromedp.Void](`history.back()`))
	w.until(t, `!document.querySelector("dialog").open`) // it was of the view before
}
