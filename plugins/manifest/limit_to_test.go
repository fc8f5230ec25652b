package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime/egress"
)

// Words of few letters, which have much in common.
var (
	someName    = rapid.StringMatching(`[ab.]{0,4}`)
	somePattern = rapid.StringMatching(`[ab.]{0,3}\*?[ab.]{0,3}`)
)

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"mail", "mail", true},
		{"mail", "mail.bulk", false},
		{"*", "", true},
		{"*", "mail", true},
		{"mail.*", "mail.", true},
		{"mail.*", "mail.bulk", true},
		{"mail.*", "mail", false},
		{"*.done", "mail.done", true},
		{"m*l", "mail", true},
		{"m*l", "ml", true},
		{"aba*aba", "aba", false},
		{"aba*aba", "abaaba", true},
		{"a?", "ab", false},
		{"[a]", "[a]", true},
		{"[a]", "a", false},
		{"a/*", "a/b/c", true},
	} {
		if got := matches(tt.pattern, tt.name); got != tt.want {
			t.Errorf("%q matches %q: %v", tt.pattern, tt.name, got)
		}
	}
}

// What two patterns have in common matches a name exactly if both do.
func TestCommonPatterns(t *testing.T) {
	t.Parallel()
	if got := common("mail.*", "*.done"); !slices.Equal(got, []string{"mail.*.done", "mail.done"}) {
		t.Errorf("mail.* and *.done: %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := somePattern.Draw(t, "a"), somePattern.Draw(t, "b")
		both := common(a, b)
		// Names that are likely to lie at the border: what the patterns themselves begin and end with.
		headA, tailA, _ := strings.Cut(a, wildcard)
		headB, tailB, _ := strings.Cut(b, wildcard)
		middle := someName.Draw(t, "name")
		names := []string{middle}
		for _, head := range []string{"", headA, headB} {
			for _, tail := range []string{"", tailA, tailB} {
				for cut := range len(tail) + 1 {
					names = append(names, head+tail[cut:], head+middle+tail[cut:])
				}
			}
		}
		for _, name := range names {
			got := slices.ContainsFunc(both, func(p string) bool { return matches(p, name) })
			if want := matches(a, name) && matches(b, name); got != want {
				t.Fatalf("%q and %q are %q, which match %q: %v, want %v", a, b, both, name, got, want)
			}
		}
	})
}

// someCapabilities are those of a manifest, or of a ceiling, whose names may be patterns.
func someCapabilities(names *rapid.Generator[string]) *rapid.Generator[Capabilities] {
	return rapid.Custom(func(t *rapid.T) (c Capabilities) {
		for _, host := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"https://a.test", "https://*.a.test", "https://b.a.test", "http://a.test"}), 0, 2, rapid.ID).Draw(t, "hosts") {
			g, err := egress.ParseGrant(host, rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"GET", "PUT"}), 1, 2, rapid.ID).Draw(t, "methods"))
			if err != nil {
				t.Fatal(err)
			}
			c.HTTP = append(c.HTTP, g)
		}
		for _, bucket := range rapid.SliceOfNDistinct(names, 0, 3, rapid.ID).Draw(t, "buckets") {
			c.KV = append(c.KV, KVGrant{bucket, rapid.Bool().Draw(t, "write"), rapid.Int64Range(1, 5).Draw(t, "quota")})
		}
		c.Secrets = rapid.SliceOfNDistinct(names, 0, 3, rapid.ID).Draw(t, "secrets")
		if queues := rapid.SliceOfNDistinct(somePattern, 0, 3, rapid.ID).Draw(t, "queues"); len(queues) > 0 {
			c.Enqueue = &EnqueueGrant{
				queues, rapid.SampledFrom([]string{afterComplete, afterCall}).Draw(t, "after"), rapid.IntRange(1, 5).Draw(t, "depth"), rapid.IntRange(1, 5).Draw(t, "tasks"), rapid.Int64Range(1, 5).Draw(t, "bytes"),
			}
		}
		if topics := rapid.SliceOfNDistinct(somePattern, 0, 3, rapid.ID).Draw(t, "topics"); len(topics) > 0 {
			c.Publish = &PublishGrant{topics, rapid.SampledFrom([]string{afterComplete, afterCall}).Draw(t, "after")}
		}
		return c
	})
}

// powers are what capabilities allow, as far as it can be listed: of these names. A number is the most of something.
func powers(c Capabilities, names []string) map[string]int64 {
	p := map[string]int64{}
	most := func(key string, value int64) { p[key] = max(p[key], value) }
	for _, name := range names {
		for _, g := range c.KV {
			if matches(g.Bucket, name) {
				most("read "+name, 1)
				if g.Write {
					most("write "+name, g.Quota)
				}
			}
		}
		if slices.ContainsFunc(c.Secrets, func(s string) bool { return matches(s, name) }) {
			most("secret "+name, 1)
		}
		if c.Enqueue.Allows(name) {
			most("enqueue "+name, int64(c.Enqueue.Depth))
			most("enqueue tasks to "+name, int64(c.Enqueue.Tasks))
			most("enqueue bytes to "+name, c.Enqueue.Bytes)
			if c.Enqueue.AfterCall() {
				most("enqueue at once "+name, 1)
			}
		}
	}
	for _, name := range names {
		if c.Publish.Allows(name) {
			most("publish to "+name, 1)
		}
	}
	for _, g := range c.HTTP {
		for _, method := range g.Methods() {
			most("http "+method+" "+g.Host(), 1)
		}
	}
	return p
}

// What stays under a ceiling is what both grant: never more, and never less. To put it there twice, or under two
// ceilings in either order, changes nothing.
func TestUnder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		manifest := someCapabilities(someName).Draw(t, "manifest")
		one, two := someCapabilities(somePattern).Draw(t, "ceiling"), someCapabilities(somePattern).Draw(t, "another")
		names := rapid.SliceOfN(someName, 10, 10).Draw(t, "names")
		for _, g := range manifest.KV {
			names = append(names, g.Bucket)
		}
		names = append(names, manifest.Secrets...)

		under := powers(manifest.LimitTo(&one), names)
		asked, most := powers(manifest, names), powers(one, names)
		for key, value := range asked {
			want := min(value, most[key])
			if strings.HasPrefix(key, "publish ") && manifest.Publish.AfterCall() && !one.Publish.AfterCall() {
				want = 0
			}
			if strings.HasPrefix(key, "enqueue ") && manifest.Enqueue.AfterCall() && !one.Enqueue.AfterCall() {
				want = 0 // it would not be there when the handler believes so
			}
			if !strings.HasPrefix(key, "http") && under[key] != want {
				t.Fatalf("%s: %d, want %d of %d", key, under[key], want, value)
			}
		}
		for key := range under {
			if !strings.HasPrefix(key, "http") && asked[key] == 0 {
				t.Fatalf("%s: is granted by the ceiling alone", key)
			}
		}
		// egress.Common has its own test.
		if got, want := fmt.Sprint(manifest.LimitTo(&one).HTTP), fmt.Sprint(egress.Common(manifest.HTTP, one.HTTP)); got != want {
			t.Fatalf("hosts %s, want %s", got, want)
		}

		same := func(what string, a, b Capabilities) {
			if a, b := powers(a, names), powers(b, names); fmt.Sprint(a) != fmt.Sprint(b) {
				t.Fatalf("%s:\n%v\n%v", what, a, b)
			}
		}
		same("twice", manifest.LimitTo(&one), manifest.LimitTo(&one).LimitTo(&one))
		same("order", manifest.LimitTo(&one).LimitTo(&two), manifest.LimitTo(&two).LimitTo(&one))
		same("itself", manifest, manifest.LimitTo(&manifest))
		same("no ceiling", manifest, manifest.LimitTo(nil))
		if got := manifest.LimitTo(&Capabilities{}); len(powers(got, names)) > 0 || got.Enqueue != nil {
			t.Fatalf("under nothing: %+v", got)
		}
	})
}

// Variables and files stay: no ceiling has them.
func TestUnderKeepsFiles(t *testing.T) {
	t.Parallel()
	c := Capabilities{Env: map[string]string{"A": "b"}, Files: []FileGrant{{From: "a", To: "/a"}}}
	if got := c.LimitTo(&Capabilities{}).Granted(nil); got == nil || fmt.Sprint(got.Env, got.Files) != "[A] [/a]" {
		t.Errorf("%+v", got)
	}
}

func TestGrantedLines(t *testing.T) {
	t.Parallel()
	m, err := Parse("x.yaml", []byte(completeManifest))
	check(t, err)
	const want = `http https://*.example.com:8443 GET, POST
kv a rw, quota 1MiB
sql a rw, commit call, 10 rows of 1MiB, timeout 1s, transaction 1m0s
enqueue mail.*, after call, depth 3, tasks 1000 of 1MiB
publish orders, bills.*, after call
secrets a_b-c.d
env A
files /a/b
config other, size`
	if got := strings.Join(m.Capabilities.Granted(m.Config).Lines(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := (Capabilities{}).Granted(nil); got != nil || got.Lines() != nil {
		t.Errorf("nothing is %+v", got)
	}
}
