package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

func TestPreview(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"": "no parameters", "text": "text", "\xff": "1 bytes", "\x1b[2J": "4 bytes", strings.Repeat("é", 100): strings.Repeat("é", 100),
		"x" + strings.Repeat("é", 100): "x" + strings.Repeat("é", 99) + "… (201 bytes)",
	} {
		if got := preview([]byte(body)); got != want {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	}
}

func TestDescribeUnique(t *testing.T) {
	t.Parallel()
	for want, unique := range map[string]*queue.Unique{
		"a to mail: no parameters":                                 nil,
		"a to mail, unique by its parameters: no parameters":       {},
		"a to mail, unique by zoe, unique for 1m0s: no parameters": {Key: "zoe", For: time.Minute},
	} {
		child := listen.Child{Queue: "mail"}
		child.ID, child.Unique = "a", unique
		if got := describe(child, nil); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
