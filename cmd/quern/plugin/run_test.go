package plugin

import (
	"strings"
	"testing"
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
