package sdk

import (
	"errors"
	"strings"
	"testing"
)

// settled is what a handler's end tells the host.
type settled struct{ text string }

func (*settled) Output([]byte) error { return nil }
func (s *settled) Fail(text string)  { s.text = text }
func (*settled) RetryAfter(int64)    {}

// The error of what no plugin can do says so: Go's own text names a cause that is none. The texts are those of Go 1.26
// for WASI.
func TestHinted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`Get "http://a.b/": dial tcp: lookup a.b on [::1]:53: write udp 127.0.0.1:8->[::1]:53: write: Connection reset by peer`: ": a plugin has no sockets: use ",
		"dial tcp 10.0.0.1:80: address 10.0.0.1:80: connect: Connection refused":                                                ": a plugin has no sockets: use ",
		"open /tmp/x: Bad file number":                         ": a plugin has no files but those of capabilities.files, for reading",
		`list: exec: "ls": executable file not found in $PATH`: ": a plugin starts no programs",
		"dial tcp 10.0.0.1:80: connect: connection refused":    "",
		"no paper": "",
	} {
		var said settled
		if status := settle(&said, nil, errors.New(text)); status != exitFailed {
			t.Errorf("%s: status %d", text, status)
		}
		if rest, ok := strings.CutPrefix(said.text, text); !ok || !strings.HasPrefix(rest, want) || (rest == "") != (want == "") {
			t.Errorf("%q", said.text)
		}
	}
}
