package javascript_test

import (
	"slices"
	"testing"

	"github.com/quern-project/quern/runtime"
)

// The methods that take locales answer as Node does for en-US.
func TestLocale(t *testing.T) {
	t.Parallel()
	got := write(t, `export default () => [
  [0, -0, 999, 1000, -1234567.891, 1.23456, 2.0004, 1e21, NaN].map((n) => n.toLocaleString()),
  (1234.5).toLocaleString("en-US"), (-12345678901234567890n).toLocaleString(), [1234, "a"].toLocaleString(),
  ["b", "B", "a", "Zoë", "zoo", "é", "e", "f", "Ä", "Straße", "strauss", "strasse"].sort((a, b) => a.localeCompare(b)).join(" "),
  "\u00e9".localeCompare("e\u0301"), "a".localeCompare("a"),
  new Date(Date.UTC(2018, 0, 2, 3, 4, 5)).toLocaleDateString(), new Date(Date.UTC(2018, 11, 20, 13, 4, 5)).toLocaleString(), "grün".toLocaleUpperCase("de"),
]`).input("")
	const want = `[["0","0","999","1,000","-1,234,567.891","1.235","2","1e+21","NaN"],"1,234.5","-12,345,678,901,234,567,890","1,234,a",` +
		`"a Ä b B e é f strasse Straße strauss Zoë zoo",0,0,"1/2/2018","12/20/2018, 1:04:05 PM","GRÜN"]`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// A locale or an option that has no effect gives one warning in the task's log.
func TestLocaleWarning(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ source, want string }{
		"Number":          {`(1.5).toLocaleString("de-DE"); (2).toLocaleString("fr")`, `warning: Number.toLocaleString: the locale "de-DE" has no effect, because a plugin has no Intl; the result is that of en-US: format it yourself, or use a package that works without Intl`},
		"Date":            {`new Date(0).toLocaleDateString(["de-DE", "en"])`, `warning: Date.toLocaleDateString: the locale "de-DE" has no effect, because a plugin has no Intl; the result is that of en-US: use a package such as dayjs`},
		"option":          {`new Date(0).toLocaleString("en-US", { timeZone: "Asia/Tokyo" })`, `warning: Date.toLocaleString: the option timeZone has no effect, because a plugin has no Intl; the result is that of en-US: use a package such as dayjs`},
		"localeCompare":   {`"a".localeCompare("b", "sv")`, `warning: String.localeCompare: the locale "sv" has no effect, because a plugin has no Intl; the result is that of en-US: compare keys of your own, such as a.toLowerCase()`},
		"case":            {`"i".toLocaleUpperCase("tr")`, `warning: String.toLocaleUpperCase: the locale "tr" has no effect, because a plugin has no Intl; the result is that of en-US: replace its letters yourself`},
		"the same result": {`(1).toLocaleString("en-US"); "ä".localeCompare("b", "de-AT"); "i".toLocaleUpperCase("de"); new Date().toLocaleString()`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := handler(t, test.source).run(runtime.Call{TaskID: "task"})
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			if o.Kind != runtime.Complete || !slices.Equal(o.log, want) {
				t.Errorf("%s %s, log %q, want %q", o.Kind, o.Message, o.log, want)
			}
		})
	}
}
