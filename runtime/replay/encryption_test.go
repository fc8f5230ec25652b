package replay

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"filippo.io/age"
)

// newIdentity makes a pair of keys, or one of `age-keygen -pq`.
func newIdentity(t *testing.T, hybrid bool) (Identity, Recipient) {
	t.Helper()
	var identity Identity
	var text string
	if hybrid {
		i, err := age.GenerateHybridIdentity()
		if err != nil {
			t.Fatal(err)
		}
		identity, text = i, i.Recipient().String()
	} else {
		i, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		identity, text = i, i.Recipient().String()
	}
	recipient, err := ParseRecipient(text)
	if err != nil {
		t.Fatal(err)
	}
	return identity, recipient
}

// An encrypted record is read with the identity of any of its recipients, and with no other.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	record := &Record{Header: Header{Task: "the task of the test"}, Input: []byte("x")}
	for name, hybrid := range map[string]bool{"X25519": false, "hybrid": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, to := newIdentity(t, hybrid)
			second, also := newIdentity(t, hybrid)
			stranger, _ := newIdentity(t, hybrid)
			data, err := record.Encode(8<<10, to, also)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(data, []byte(encryptedMagic)) || bytes.Contains(data, []byte("the task")) {
				t.Errorf("%q", data)
			}
			for _, identities := range [][]Identity{{first}, {second}, {stranger, second}} {
				if got, err := Decode(data, identities...); err != nil || !reflect.DeepEqual(got, record) {
					t.Errorf("%+v, %v", got, err)
				}
			}
			for _, identities := range [][]Identity{nil, {stranger}} {
				_, err := Decode(data, identities...)
				encrypted, ok := errors.AsType[*EncryptedError](err)
				if !ok || !reflect.DeepEqual(encrypted.Recipients, []string{to.text, also.text}) || encrypted.Tried != len(identities) {
					t.Errorf("%v", err)
				}
			}
			if _, err := record.Encode(len(data)-1, to, also); !errors.Is(err, ErrTooLarge) {
				t.Errorf("encoded in less: %v", err)
			}
			data[len(data)-1] ^= 1
			if _, err := Decode(data, first); !errors.Is(err, ErrDamaged) {
				t.Errorf("damaged: %v", err)
			}
		})
	}
}

// Texts that are no recipients are refused, without repeating them.
func TestRecipients(t *testing.T) {
	t.Parallel()
	private, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	good := private.Recipient().String()
	for _, text := range []string{"", "age1", private.String(), good + "\n" + good, good[:len(good)-1], "# " + good, "ssh-ed25519 AAAA"} {
		if _, err := ParseRecipient(text); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, plain := newIdentity(t, false)
	_, hybrid := newIdentity(t, true)
	if CheckRecipients([]Recipient{plain, hybrid}) == nil || CheckRecipients([]Recipient{plain, plain}) != nil || CheckRecipients(nil) != nil {
		t.Error("mixed keys are not told from others")
	}
}
