// Package signature signs webhooks and checks their signatures by the Standard Webhooks specification (symmetric
// signatures, version v1). Receivers find libraries for it in many languages.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed webhook.
const (
	HeaderID        = "Webhook-Id"        // the same whenever the webhook is sent again
	HeaderTimestamp = "Webhook-Timestamp" // when it was sent, in seconds of Unix time
	HeaderSignature = "Webhook-Signature" // v1, and the HMAC in base64; several such values are separated by spaces
)

const (
	keyPrefix = "whsec_"
	version   = "v1,"
	// tolerance is the maximum difference between the clocks of sender and receiver. An older webhook may be a recording
	// that is sent again.
	tolerance = 5 * time.Minute
	// minKey and maxKey bound the length of a key in bytes.
	minKey, maxKey = 24, 64
)

// Key is the secret that a sender and a receiver share.
type Key []byte

// ParseKey reads a key in its text form, whsec_ and base64. The error does not contain the text.
func ParseKey(text string) (Key, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), keyPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < minKey || len(key) > maxKey {
		return nil, fmt.Errorf("no key: write %s and the base64 of %d to %d random bytes", keyPrefix, minKey, maxKey)
	}
	return key, nil
}

// Sign returns the value of the header Webhook-Signature. at must be the time in the header Webhook-Timestamp.
func (k Key) Sign(id string, at time.Time, body []byte) string {
	return version + base64.StdEncoding.EncodeToString(k.mac(id, strconv.FormatInt(at.Unix(), 10), body))
}

// Check returns what is wrong with a webhook that was received; nil if nothing is. id, timestamp and signatures are the
// values of its three headers.
func (k Key) Check(id, timestamp, signatures string, body []byte, now time.Time) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%s %q is no Unix time", HeaderTimestamp, timestamp)
	}
	if age := now.Sub(time.Unix(seconds, 0)).Abs(); age > tolerance {
		return fmt.Errorf("%s is %s away, more than %s", HeaderTimestamp, age.Round(time.Second), tolerance)
	}
	want := k.mac(id, timestamp, body)
	for one := range strings.FieldsSeq(signatures) {
		encoded, ok := strings.CutPrefix(one, version)
		got, err := base64.StdEncoding.DecodeString(encoded)
		if ok && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return errors.New(HeaderSignature + " is not by this key, or not of this body")
}

func (k Key) mac(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, k)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}
