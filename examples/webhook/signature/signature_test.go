package signature

import (
	"strings"
	"testing"
	"time"
)

// The example of the specification's own libraries.
const (
	exampleKey       = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	exampleTimestamp = 1614265330
	exampleBody      = `{"test": 2432232314}`
	exampleSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestSign(t *testing.T) {
	t.Parallel()
	key, err := ParseKey(exampleKey + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := key.Sign(exampleID, time.Unix(exampleTimestamp, 999), []byte(exampleBody)); got != exampleSignature {
		t.Errorf("signature %s, want %s", got, exampleSignature)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	key, err := ParseKey(exampleKey)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ParseKey(keyPrefix + strings.Repeat("A", 32))
	if err != nil {
		t.Fatal(err)
	}
	sent := time.Unix(exampleTimestamp, 0)
	tests := map[string]struct {
		key                   Key
		id, timestamp, header string
		body                  string
		now                   time.Time
		want                  string
	}{
		"OK":           {key, exampleID, "1614265330", exampleSignature, exampleBody, sent, ""},
		"OKOld":        {key, exampleID, "1614265330", exampleSignature, exampleBody, sent.Add(5 * time.Minute), ""},
		"OKEarly":      {key, exampleID, "1614265330", exampleSignature, exampleBody, sent.Add(-5 * time.Minute), ""},
		"OKSecond":     {key, exampleID, "1614265330", "v1,AAAA v1a,BBBB " + exampleSignature, exampleBody, sent, ""},
		"ErrTooOld":    {key, exampleID, "1614265330", exampleSignature, exampleBody, sent.Add(301 * time.Second), "5m1s away, more than 5m0s"},
		"ErrTooEarly":  {key, exampleID, "1614265330", exampleSignature, exampleBody, sent.Add(-301 * time.Second), "5m1s away"},
		"ErrNoTime":    {key, exampleID, "", exampleSignature, exampleBody, sent, `Webhook-Timestamp "" is no Unix time`},
		"ErrOtherTime": {key, exampleID, "1614265331", exampleSignature, exampleBody, sent, "not by this key"},
		"ErrOtherID":   {key, "msg_2", "1614265330", exampleSignature, exampleBody, sent, "not by this key"},
		"ErrOtherBody": {key, exampleID, "1614265330", exampleSignature, "{}", sent, "not by this key"},
		"ErrOtherKey":  {other, exampleID, "1614265330", exampleSignature, exampleBody, sent, "not by this key"},
		"ErrVersion":   {key, exampleID, "1614265330", "v2," + exampleSignature[3:], exampleBody, sent, "not by this key"},
		"ErrNone":      {key, exampleID, "1614265330", "", exampleBody, sent, "not by this key"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.key.Check(tt.id, tt.timestamp, tt.header, []byte(tt.body), tt.now)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestParseKeyErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_short", "whsec_AAAA", "whsec_" + strings.Repeat("A", 88)} {
		_, err := ParseKey(text)
		if err == nil || text != "" && len(text) > len(keyPrefix) && strings.Contains(err.Error(), text) {
			t.Errorf("%q: error %v, want one without the text", text, err)
		}
	}
}
