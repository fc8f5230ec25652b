// Package seal encrypts the payloads of a tenant at rest: the parameters and results of tasks, checkpoints, records of
// runs, publications and the parameters of schedules. Whoever reads Redis, its files or its backups without a key sees
// how long they are, and no more. Names, labels, headers, errors, progress messages, logs, kv and metrics are not
// encrypted.
//
// A sealed payload is AES-256-GCM: "quern:sealed:", the ID of the key, ":", a nonce of 12 bytes, the ciphertext and a
// tag of 16 bytes. The nonce is not random but an HMAC-SHA256 of the subject and the payload (as in RFC 5297: a
// synthetic initialization vector), so that a task that is enqueued again by its ID has the same parameters as before.
// Two tasks with equal payloads have different subjects, and so different ciphertexts. The nonces of different payloads
// may be equal by chance, as random ones: a key is good for 2^32 payloads. The tag does not bind the subject, because
// the result of a task becomes the parameters of another one.
//
// A key ring has the key that seals, and others that only open. A key is replaced in three steps, each on all hosts and
// producers before the next: add the new key behind the old one, put it in front, remove the old one once nothing that
// it sealed is kept.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// Prefix begins a sealed payload.
	Prefix = "quern:sealed:"
	// KeySize is the size of a key in bytes.
	KeySize = 32
	// MaxKeys is the maximum number of keys of a ring.
	MaxKeys = 16
	// Overhead is how many bytes a sealed payload is longer than the payload.
	Overhead = len(Prefix) + idSize + 1 + nonceSize + tagSize

	idSize, nonceSize, tagSize = 16, 12, 16
)

// ErrKey means that a payload is sealed with a key that the reader lacks.
var ErrKey = errors.New("it is encrypted with a key that is missing here")

// ErrDamaged means that a sealed payload does not match its tag: it is damaged or forged.
var ErrDamaged = errors.New("it is encrypted, and damaged")

// Ring has the keys of a tenant. Its methods work on a nil Ring, which has no keys and seals nothing. It is safe for
// concurrent use.
type Ring struct{ keys []key }

type key struct {
	id           string
	aead         cipher.AEAD
	nonces, hash []byte // keys of HMACs
}

// Parse reads a key ring: one key a line, each 32 bytes in base64, the first of which seals. Empty lines, and lines
// that begin with #, are passed over.
func Parse(text string) (*Ring, error) {
	r := &Ring{}
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(secret) != KeySize {
			return nil, fmt.Errorf("line %d is no key: write %d bytes in base64, as `openssl rand -base64 %d` prints them",
				number+1, KeySize, KeySize)
		}
		k := newKey(secret)
		if slices.ContainsFunc(r.keys, func(other key) bool { return other.id == k.id }) {
			return nil, fmt.Errorf("line %d repeats a key: leave it out", number+1)
		}
		if r.keys = append(r.keys, k); len(r.keys) > MaxKeys {
			return nil, fmt.Errorf("line %d: more than %d keys: remove those that sealed nothing that is still kept",
				number+1, MaxKeys)
		}
	}
	if len(r.keys) == 0 {
		return nil, fmt.Errorf("no key: write a line with %d bytes in base64, as `openssl rand -base64 %d` prints them",
			KeySize, KeySize)
	}
	return r, nil
}

// NewKey makes a random key, as Parse reads it.
func NewKey() string {
	secret := make([]byte, KeySize)
	_, _ = rand.Read(secret) // never fails
	return base64.StdEncoding.EncodeToString(secret)
}

func newKey(secret []byte) key {
	derived := func(purpose string) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(purpose))
		return mac.Sum(nil)
	}
	block, err := aes.NewCipher(derived("quern payload encryption"))
	if err != nil {
		panic(err) // the key has the right size
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	id := hex.EncodeToString(derived("quern payload key ID"))[:idSize]
	return key{id: id, aead: aead, nonces: derived("quern payload nonce"), hash: derived("quern payload hash")}
}

// KeyIDs returns the IDs of the keys, in the order of the ring.
func (r *Ring) KeyIDs() (ids []string) {
	if r != nil {
		for i := range r.keys {
			ids = append(ids, r.keys[i].id)
		}
	}
	return ids
}

// Seal encrypts a payload with the first key. subject is the ID of the task or publication to which it belongs: see the
// package comment. A nil Ring returns the payload itself, and so does an empty payload, whose length tells all.
func (r *Ring) Seal(subject string, payload []byte) []byte {
	if r == nil || len(payload) == 0 {
		return payload
	}
	k := &r.keys[0]
	mac := hmac.New(sha256.New, k.nonces)
	fmt.Fprintf(mac, "%d %s", len(subject), subject)
	mac.Write(payload)
	nonce := mac.Sum(nil)[:nonceSize]
	out := make([]byte, 0, len(payload)+Overhead)
	out = append(append(append(append(out, Prefix...), k.id...), ':'), nonce...)
	return k.aead.Seal(out, nonce, payload, out[:len(Prefix)+idSize])
}

// Open decrypts a payload. One that is not sealed is returned as it is: a producer without a key may have written it.
// The error is ErrKey or ErrDamaged.
func (r *Ring) Open(payload []byte) ([]byte, error) {
	id := SealedBy(payload)
	if id == "" {
		return payload, nil
	}
	for _, k := range r.all() {
		if k.id == id {
			head, rest := payload[:len(Prefix)+idSize], payload[len(Prefix)+idSize+1:]
			opened, err := k.aead.Open(nil, rest[:nonceSize], rest[nonceSize:], head)
			if err != nil {
				return nil, fmt.Errorf("%w: key %s", ErrDamaged, id)
			}
			return opened, nil
		}
	}
	has := "it has no keys"
	if ids := r.KeyIDs(); ids != nil {
		has = "it has " + strings.Join(ids, ", ")
	}
	return nil, fmt.Errorf("%w: key %s, %s", ErrKey, id, has)
}

func (r *Ring) all() []key {
	if r == nil {
		return nil
	}
	return r.keys
}

// SealedBy returns the ID of the key that sealed a payload; "" if it is not sealed.
func SealedBy(payload []byte) string {
	if len(payload) < Overhead || string(payload[:len(Prefix)]) != Prefix || payload[len(Prefix)+idSize] != ':' {
		return ""
	}
	id := string(payload[len(Prefix) : len(Prefix)+idSize])
	if strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}

// Hash returns a SHA-256 in hex, which nobody without the first key can compute. A nil Ring needs no key for it.
func (r *Ring) Hash(text []byte) string {
	if r == nil {
		sum := sha256.Sum256(text)
		return hex.EncodeToString(sum[:])
	}
	mac := hmac.New(sha256.New, r.keys[0].hash)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil))
}
