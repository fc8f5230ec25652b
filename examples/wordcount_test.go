package examples_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/quern-project/quern/examples/internal/exampletest"
)

type frequency struct {
	Word  string `json:"word"`
	Count int    `json:"count"`
}

type counts struct {
	Lines      int         `json:"lines"`
	Words      int         `json:"words"`
	Characters int         `json:"characters"`
	Bytes      int         `json:"bytes"`
	Top        []frequency `json:"top"`
}

func testWordcount(t *testing.T, plugin *exampletest.Plugin) {
	plugin.Cases(t, 2)
	complete := map[string]struct {
		text string
		want counts
	}{
		"OK": {
			"The miller grinds. The quern grinds the corn.\n",
			counts{1, 8, 46, 46, []frequency{{"the", 3}, {"grinds", 2}, {"corn", 1}, {"miller", 1}, {"quern", 1}}},
		},
		"OKEmpty": {"", counts{Top: []frequency{}}},
		"OKUnicode": {
			"GRÜSSE aus Köln: 東京 — grüsse",
			counts{0, 5, 28, 37, []frequency{{"grüsse", 2}, {"aus", 1}, {"köln", 1}, {"東京", 1}}},
		},
		"OKQuotes": {
			"'the' miller's “dog’s”",
			counts{0, 3, 22, 28, []frequency{{"dog’s", 1}, {"miller's", 1}, {"the", 1}}},
		},
		"OKLongWord": {
			strings.Repeat("a", 100),
			counts{0, 1, 100, 100, []frequency{{strings.Repeat("a", 64), 1}}},
		},
		"OKTopTen": {
			"k j i h g f e d c b a a",
			counts{0, 12, 23, 23, []frequency{
				{"a", 2}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}, {"h", 1}, {"i", 1}, {"j", 1},
			}},
		},
	}
	for name, tt := range complete {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := count(t, plugin, tt.text); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}

	failed := map[string]string{
		"ErrLatin1":    "caf\xe9 au lait",
		"ErrCutShort":  "caf\xc3",
		"ErrSurrogate": "\xed\xa0\x80",
	}
	for name, text := range failed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := plugin.Run(t, []byte(text))
			if got.Exit != 1 || len(got.Stdout) != 0 || !strings.Contains(got.Stderr, "not UTF-8") {
				t.Errorf("exit %d, stdout %q, stderr %q; want 1, nothing and the reason", got.Exit, got.Stdout, got.Stderr)
			}
		})
	}

	// Every word is another, so the table grows many times, and all are still found in it.
	t.Run("OKManyWords", func(t *testing.T) {
		t.Parallel()
		const different = 20_000
		var text strings.Builder
		for i := range 2 * different {
			fmt.Fprintf(&text, "w%d ", i%different)
		}
		got := count(t, plugin, text.String())
		if got.Words != 2*different || len(got.Top) != 10 {
			t.Errorf("%d words and a list of %d, want %d and 10", got.Words, len(got.Top), 2*different)
		}
		for _, top := range got.Top {
			if top.Count != 2 {
				t.Errorf("%q was counted %d times, want 2", top.Word, top.Count)
			}
		}
	})
}

// count runs the plugin on the text and reads its result.
func count(t *testing.T, plugin *exampletest.Plugin, text string) counts {
	t.Helper()
	run := plugin.Run(t, []byte(text))
	if run.Exit != 0 {
		t.Fatalf("exit %d; stderr: %s", run.Exit, run.Stderr)
	}
	var got counts
	if err := json.Unmarshal(run.Stdout, &got); err != nil {
		t.Fatalf("%v in the result %q", err, run.Stdout)
	}
	return got
}
