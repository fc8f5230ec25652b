package plugins

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/quern-project/quern/runtime"
)

// releaseOf makes the folder of a release with the guest of this number.
func releaseOf(t *testing.T, number int, manifest string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir+"/mail.wasm", guest(t, number))
	if manifest != "" {
		write(t, dir+"/mail.yaml", []byte(manifest))
	}
	return dir
}

// runsOn runs a task on a release beside the one that serves a queue; "" if it is not there.
func (f *fixture) runsOn(queue string, number int) string {
	f.t.Helper()
	s, ok := f.AcquireServing("acme", queue)
	if !ok {
		return ""
	}
	defer s.Release()
	v := s.Other(number)
	if v == nil {
		return ""
	}
	outcome := v.Run(f.t.Context(), runtime.Call{TaskID: "1", Queue: queue})
	if outcome.Kind != runtime.Complete || !slices.Contains(s.Others(), number) {
		f.t.Fatalf("task on release %d of %v: %+v", number, s.Others(), outcome)
	}
	return string(outcome.Output)
}

func (f *fixture) awaitRunOn(queue string, number int, want string) {
	f.t.Helper()
	eventually(f.t, func() error {
		if got := f.runsOn(queue, number); got != want {
			return fmt.Errorf("release %d: output %q, want %q: %+v", number, got, want, f.List())
		}
		return nil
	})
}

// A canary runs beside what serves, is listed, and serves once it is promoted, without being compiled again.
func TestReleaseBeside(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, nil)
	one, two := releaseOf(t, 1, ""), releaseOf(t, 2, "")
	set := func(r Release) { f.SetReleases("acme", map[string]Release{"mail": r}) }
	set(Release{Number: 1, Dir: one, Beside: []Beside{{Number: 2, Dir: two, Canary: true}}})
	f.awaitRunOn("mail", 2, output(2))
	f.awaitRun("acme", "mail", output(1))
	if s, ok := f.status("acme", "mail", StateCanary); !ok || s.Release != 2 {
		t.Errorf("the canary is listed as %+v", f.List())
	}
	if got := f.runs("{blue}", "mail"); got != "" {
		t.Errorf("another tenant has it: %q", got)
	}
	held, ok := f.AcquireServing("acme", "mail")
	if !ok {
		t.Fatal("nothing serves")
	}
	module := held.Other(2).module
	set(Release{Number: 2, Dir: two, Beside: []Beside{{Number: 1, Dir: one}}})
	f.awaitRun("acme", "mail", output(2))
	f.awaitRunOn("mail", 1, output(1))
	held.Release()
	now := f.Acquire("acme", "mail")
	defer now.Release()
	if now.module != module {
		t.Error("the promoted canary was compiled again")
	}
	if _, ok := f.status("acme", "mail", StatePinned); !ok {
		t.Errorf("the former release is listed as %+v", f.List())
	}
	set(Release{Number: 2, Dir: two})
	eventually(t, func() error {
		if s, ok := f.AcquireServing("acme", "mail"); ok {
			defer s.Release()
			if others := s.Others(); len(others) > 0 {
				return fmt.Errorf("releases %v are still there", others)
			}
		}
		return nil
	})
	f.awaitRun("acme", "mail", output(2))
}

// A promoted canary of which nobody holds the module goes on until it serves.
func TestPromotedCanaryIsNotClosed(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, nil)
	one, two := releaseOf(t, 1, ""), releaseOf(t, 2, "")
	for range 5 {
		f.SetReleases("acme", map[string]Release{"mail": {Number: 1, Dir: one, Beside: []Beside{{Number: 2, Dir: two, Canary: true}}}})
		f.awaitRun("acme", "mail", output(1))
		f.awaitRunOn("mail", 2, output(2))
		s, _ := f.AcquireServing("acme", "mail")
		module := s.Other(2).module
		s.Release()
		f.SetReleases("acme", map[string]Release{"mail": {Number: 2, Dir: two}})
		f.awaitRun("acme", "mail", output(2))
		v := f.Acquire("acme", "mail")
		if v.module != module {
			t.Error("the promoted canary was compiled again")
		}
		v.Release()
	}
}

// A canary with a queue that does not serve is refused, and what serves goes on; so is one that is no module. A release
// for pinned tasks may have other queues.
func TestRefusedCanary(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, nil)
	one, two, three := releaseOf(t, 1, "queues: [mail, bulk]"), releaseOf(t, 2, "queues: [mail, news]"), releaseOf(t, 3, "queues: [mail]")
	set := func(beside ...Beside) {
		f.SetReleases("acme", map[string]Release{"mail": {Number: 1, Dir: one, Beside: beside}})
	}
	set(Beside{Number: 2, Dir: two, Canary: true})
	if s := f.awaitRefusal("acme", "mail", `has no queue "news"`, "push without --canary"); s.Release != 2 {
		t.Errorf("refused is release %d", s.Release)
	}
	f.awaitRun("acme", "bulk", output(1))
	if got := f.runs("acme", "news"); got != "" {
		t.Errorf("the canary owns a queue: %q", got)
	}
	set(Beside{Number: 2, Dir: two}, Beside{Number: 3, Dir: three, Canary: true})
	f.awaitRunOn("mail", 2, output(2))
	f.awaitRunOn("bulk", 3, output(3))
	f.awaitNoRefusal("acme", "mail")
	bad := t.TempDir()
	write(t, bad+"/mail.wasm", []byte("no module"))
	set(Beside{Number: 4, Dir: bad, Canary: true})
	f.awaitRefusal("acme", "mail", "release 4")
	f.awaitRun("acme", "mail", output(1))
}

// A module of the plugin directory serves alone.
func TestDirectoryBeforeCanary(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, nil)
	f.SetReleases("acme", map[string]Release{"mail": {
		Number: 1, Dir: releaseOf(t, 1, ""), Beside: []Beside{{Number: 2, Dir: releaseOf(t, 2, ""), Canary: true}},
	}})
	f.awaitRunOn("mail", 2, output(2))
	check(t, os.Mkdir(f.path("acme"), 0o700))
	f.write("acme/mail.wasm", guest(t, 9))
	f.awaitRun("acme", "mail", output(9))
	eventually(t, func() error {
		if all := f.List(); len(all) != 1 {
			return fmt.Errorf("listed are %+v", all)
		}
		return nil
	})
	s, _ := f.AcquireServing("acme", "mail")
	defer s.Release()
	if s.Number != 0 || len(s.Others()) > 0 {
		t.Errorf("release %d serves, and %v", s.Number, s.Others())
	}
}
