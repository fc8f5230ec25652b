package python_test

import ("testing";"os";"strings";"github.com/quern-project/quern/runtime")

func TestDev(t *testing.T) {
	for _, s := range strings.Split(os.Getenv("DEV"), "---") {
		p := handler(t, s)
		r := p.run(t, order)
		var best = r.CPU
		for range 200 { q := p.run(t, order); if q.CPU < best { best = q.CPU } }
		t.Logf("%s\n=> %s %s %q fuel %d cpu %v\n%s", s, r.Kind, r.Message, r.Output, r.Fuel, best, r.logged())
		_ = runtime.Call{}
	}
}
