package spelling

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"queue", "queue", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"queu", "queue", 1},
		{"queuee", "queue", 1},
		{"quexe", "queue", 1},
		{"qeuue", "queue", 1},
		{"timeuot", "timeout", 1},
		{"kitten", "sitting", 3},
		{"memroy", "memory", 1},
		{strings.Repeat("a", 100_000), "a", 63},
	} {
		if got := Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("from %.20q to %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
