package seal

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func parse(t *testing.T, keys ...string) *Ring {
	t.Helper()
	r, err := Parse(strings.Join(keys, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRing(t *testing.T) {
	first, second := NewKey(), NewKey()
	old, both, other := parse(t, first), parse(t, "# the new one", second, "", first), parse(t, second)
	payload := []byte(`{"card": "4111"}`)
	sealed := old.Seal("task", payload)
	if len(sealed) != len(payload)+Overhead || bytes.Contains(sealed, []byte("4111")) || SealedBy(sealed) != old.KeyIDs()[0] {
		t.Errorf("sealed: %q by %q", sealed, SealedBy(sealed))
	}
	for name, keys := range map[string]*Ring{"the key": old, "a new key before it": both} {
		if got, err := keys.Open(sealed); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("open with %s: %q, %v", name, got, err)
		}
	}
	if !bytes.Equal(old.Seal("task", payload), sealed) {
		t.Error("a repeated seal differs")
	}
	for name, differs := range map[string][]byte{
		"another task": old.Seal("other", payload), "another payload": old.Seal("task", []byte(`{"card": "4112"}`)),
		"a shifted subject": old.Seal("tas", append([]byte("k"), payload...)), "another key": both.Seal("task", payload),
	} {
		if bytes.Equal(differs[len(Prefix)+idSize:], sealed[len(Prefix)+idSize:]) {
			t.Errorf("the same ciphertext for %s", name)
		}
	}
	var none *Ring
	for name, keys := range map[string]*Ring{"another key": other, "no key": none} {
		_, err := keys.Open(sealed)
		if !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), "key "+old.KeyIDs()[0]) {
			t.Errorf("open with %s: %v", name, err)
		}
	}
	for at := range sealed {
		forged := bytes.Clone(sealed)
		forged[at] ^= 1
		got, err := old.Open(forged)
		if SealedBy(forged) == "" && bytes.Equal(got, forged) { // no longer sealed
			continue
		}
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrKey) {
			t.Errorf("byte %d is forged: %q, %v", at, got, err)
		}
	}
	for _, plain := range []string{"", "text", Prefix, Prefix + strings.Repeat("x", Overhead)} {
		if got, err := old.Open([]byte(plain)); err != nil || string(got) != plain {
			t.Errorf("open %q: %q, %v", plain, got, err)
		}
	}
	if none.Seal("task", payload)[0] != '{' || len(old.Seal("task", nil)) != 0 {
		t.Error("sealed without a key, or nothing sealed")
	}
	if old.Hash(payload) == none.Hash(payload) || old.Hash(payload) == other.Hash(payload) || old.Hash(payload) != both.keys[1].ringHash(payload) {
		t.Error("hashes do not depend on the key alone")
	}
}

// ringHash is Ring.Hash of a ring with this key alone.
func (k key) ringHash(text []byte) string { return (&Ring{keys: []key{k}}).Hash(text) }

func TestParse(t *testing.T) {
	key := NewKey()
	for text, want := range map[string]string{
		"":                                     "no key: write a line with 32 bytes in base64, as `openssl rand -base64 32` prints them",
		"# none\n":                             "no key",
		"c2hvcnQ=":                             "line 1 is no key: write 32 bytes",
		key + "\n" + key:                       "line 2 repeats a key",
		key + "\nnot base64":                   "line 2 is no key",
		strings.Repeat("x", 44):                "line 1 is no key",
		strings.Join(manyKeys(), "\n") + "\n ": "line 17: more than 16 keys",
	} {
		if _, err := Parse(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want %s", text, err, want)
		}
	}
}

func manyKeys() (keys []string) {
	for range MaxKeys + 1 {
		keys = append(keys, NewKey())
	}
	return keys
}
