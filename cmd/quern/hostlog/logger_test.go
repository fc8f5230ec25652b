package hostlog

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TestLoggerText: a record is one line, which names each field of a guest's line.
func TestLoggerText(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := newLogger(&hclog.LoggerOptions{Output: &out, DisableTime: true, Level: hclog.Info}).With("wait", time.Minute)
	log.Warn("text", "took", 1234567*time.Nanosecond, "digest", "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "line", "sha256:of",
		"fields", map[string]any{"width": json.Number("1.50"), "a b=\n": "x\ny", "list": []any{"z", nil}})
	log.Warn("names", "fields", map[string]any{"": "a", " ": "b", "@": "c", "_": "d"})
	log.Debug("not shown")
	want := `[WARN]  text: wait_seconds=60 took_seconds=0.001235 digest=sha256:0123456789ab line=sha256:of fields.a_b__="x\ny" fields.list="[\"z\",null]" fields.width=1.50` + "\n" +
		`[WARN]  names: wait_seconds=60 fields._="a" fields.__="b" fields.___="c" fields.____="d"` + "\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}
