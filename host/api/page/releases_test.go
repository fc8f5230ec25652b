package page_test

import (
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/release"
)

// pushed makes a release of the plugin mail serve, or the canary.
func (w *world) pushed(t *testing.T, module, version, note string, share *release.Share) release.Release {
	t.Helper()
	files := []release.Content{{Name: "mail.wasm", Data: []byte(module)}}
	r, err := release.New("mail", files)
	must(t, err)
	r.Version, r.Note, r.By = version, note, "ada@laptop"
	r, err = release.Push(w.ctx, release.NewStore(w.Client), r, files, share)
	must(t, err)
	return r
}

// canary is a release of the plugin mail beside another one. Tasks of both have ended.
func (w *world) canary(t *testing.T) release.Release {
	t.Helper()
	w.pushed(t, "one", "1.0.0", "the first", nil)
	r := w.pushed(t, "two", "1.1.0", "quicker", &release.Share{Steps: []release.Step{{Percent: 10, Tasks: 500}, {Percent: 50}}})
	step := release.TrialStep{}
	for range 199 {
		step.Old.Complete(20*time.Millisecond, 1e6)
	}
	step.Old.Fail(release.KindError)
	for range 38 {
		step.New.Complete(30*time.Millisecond, 1e6)
	}
	step.New.Fail(release.KindTrap)
	step.New.Fail(release.KindTrap)
	_, err := release.NewStore(w.Client).AddTrial(w.ctx, &r, &release.Trial{Steps: []release.TrialStep{step}})
	must(t, err)
	return r
}

// is waits until a release of mail is in a state.
func (w *world) is(t *testing.T, number int, state string) {
	t.Helper()
	w.eventually(t, "a release is "+state, func() (bool, error) {
		r, err := release.NewStore(w.Client).Release(w.ctx, "mail", number)
		return r.State() == state, err
	})
}

// A canary is halted with a reason, another one promoted, a release served again, pushes refused, and a release deleted.
func TestReleaseActions(t *testing.T) {
	w := setup(t)
	canary := w.canary(t)
	w.goTo(t, "/plugins/mail", "Plugin mail")
	w.press(t, "Halt")
	w.see(t, "Halt release 2 of mail?", "release 1 serves all of them")
	w.accessible(t, "dialog")
	w.fill(t, "reason", "too many traps")
	w.press(t, "Halt it")
	w.is(t, canary.Number, release.StateHalted)
	w.see(t, "Release 2 was stopped", "too many traps", "Last trial")

	second := w.pushed(t, "three", "1.2.0", "", &release.Share{Steps: []release.Step{{Percent: 50}}})
	w.see(t, "3 (1.2.0)")
	w.press(t, "Promote")
	w.see(t, "It serves all tasks, and replaces release 1.")
	w.press(t, "Promote it")
	w.is(t, second.Number, release.StateServing)
	w.press(t, "Roll back")
	w.see(t, "All hosts serve release 1 (1.0.0) again")
	w.press(t, "Leave it", "Roll back", "Serve release 1")
	w.is(t, second.Number, release.StateRolledBack)
	w.see(t, "rolled back")
	w.press(t, "Freeze", "Freeze it")
	w.is(t, 1, release.StateFrozen)
	w.press(t, "Allow pushes", "Allow them")
	w.is(t, 1, release.StateServing)
	w.press(t, "Serve", "Serve release 3")
	w.is(t, second.Number, release.StateServing)
	w.see(t, "3 (1.2.0)")
	w.press(t, "Delete") // of the first row that has it
	w.see(t, "Delete release 2 of mail?")
	w.press(t, "Delete it")
	w.eventually(t, "the release is deleted", func() (bool, error) {
		all, err := release.NewStore(w.Client).Releases(w.ctx, "mail")
		return len(all) == 2, err
	})
	// The entry of a request is written after its work, so the last one may still come.
	for _, action := range []string{"halt-release", "promote-release", "serve-release", "freeze-plugin", "thaw-plugin", "delete-release"} {
		w.eventually(t, action+" is in the audit log", func() (bool, error) {
			entries, err := manage.New(w.Client).AuditLog(w.ctx, "", 100)
			return slices.ContainsFunc(entries, func(e manage.AuditEntry) bool { return e.Action == action }), err
		})
	}
}

// A viewer sees releases and counts, and no button that changes them.
func TestReleasesOfViewer(t *testing.T) {
	w, viewer := setupViewer(t)
	w.canary(t)
	w.do(t, chromedp.Navigate(w.base+"#/"+w.Tenant()+"/plugins/mail"))
	w.see(t, "Sign in")
	w.do(t, chromedp.SendKeys(`input[name="token"]`, viewer+"\r"))
	w.see(t, "canary", "5.0 %", "quicker")
	if n := evaluate[int](t, w, `document.querySelectorAll("main button").length`); n > 0 {
		t.Errorf("a viewer sees %d buttons", n)
	}
}
