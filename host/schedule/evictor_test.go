package schedule

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// That plugins are unloaded again and again is said once, and only if it is often.
func TestEvictionsAreCounted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		evictions, want int
		every           time.Duration
	}{
		"Few":    {oftenEvictions - 1, 0, time.Millisecond},
		"Often":  {10 * oftenEvictions, 1, time.Second},
		"Seldom": {10 * oftenEvictions, 0, oftenWithin / 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := new(bytes.Buffer)
			e := NewEvictor(New(Config{Slots: 1, Memory: 1, Logger: hclog.New(&hclog.LoggerOptions{Output: log})}), nil)
			now := time.Now()
			for range tt.evictions {
				now = now.Add(tt.every)
				e.count(now)
			}
			if got := strings.Count(log.String(), "memory is so small"); got != tt.want {
				t.Errorf("said %d times, want %d", got, tt.want)
			}
		})
	}
}
