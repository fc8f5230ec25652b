package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// Recipient is a public key of age. Its identity, the private key, reads the records that are encrypted to it.
type Recipient struct {
	text string
	key  age.Recipient
}

// RecipientRule says how a recipient is written.
const RecipientRule = "write a public key that `age-keygen` prints; it begins with age1"

// prefixHybrid begins the keys of `age-keygen -pq`.
const prefixHybrid = "age1pq1"

// ParseRecipient reads a public key of age. An error does not repeat the text, which may be a private key.
func ParseRecipient(text string) (Recipient, error) {
	keys, err := age.ParseRecipients(strings.NewReader(text))
	switch {
	case strings.HasPrefix(text, "AGE-SECRET-KEY-"):
		return Recipient{}, errors.New("is a private key")
	case err != nil || len(keys) != 1 || strings.ContainsAny(text, " \n"):
		return Recipient{}, errors.New("is not a public key of age")
	}
	return Recipient{text, keys[0]}, nil
}

// CheckRecipients returns an error if no record can be encrypted to all of these recipients: age does not mix the keys
// of `age-keygen -pq` with others.
func CheckRecipients(all []Recipient) error {
	for _, r := range all {
		if strings.HasPrefix(r.text, prefixHybrid) != strings.HasPrefix(all[0].text, prefixHybrid) {
			return errors.New("mixes keys that begin with " + prefixHybrid + " with others")
		}
	}
	return nil
}

// Identity is a private key of age.
type Identity = age.Identity

// ParseIdentities reads a file that `age-keygen` wrote.
func ParseIdentities(file io.Reader) ([]Identity, error) { return age.ParseIdentities(file) }

// EncryptedError means that a record is encrypted, and no identity for it was given.
type EncryptedError struct {
	// Recipients are the public keys to which the record is encrypted.
	Recipients []string
	// Tried is the number of identities that were given.
	Tried int
}

func (e *EncryptedError) Error() string {
	what := "the record is encrypted to " + strings.Join(e.Recipients, ", ")
	if e.Tried > 0 {
		what += ", and the identity is of another key"
	}
	return what
}

// An encrypted record begins with this line and a line of the recipients. The rest is a file of age with a record
// without its magic.
const encryptedMagic = "quern encrypted record 1\n"

// maxRecipientsLine bounds the line of the recipients, in bytes.
const maxRecipientsLine = 64 << 10

// encrypt begins a record on out. What is written to the result is encrypted, unless there are no recipients.
func encrypt(out *bytes.Buffer, recipients []Recipient) (io.WriteCloser, error) {
	if len(recipients) == 0 {
		out.WriteString(magic)
		return plain{out}, nil
	}
	texts, keys := make([]string, len(recipients)), make([]age.Recipient, len(recipients))
	for i, r := range recipients {
		texts[i], keys[i] = r.text, r.key
	}
	out.WriteString(encryptedMagic + strings.Join(texts, " ") + "\n")
	w, err := age.Encrypt(out, keys...)
	if err != nil {
		return nil, fmt.Errorf("encrypt record: %w", err)
	}
	return w, nil
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// decrypt returns what follows the magic of a record, decrypted.
func decrypt(data []byte, identities []Identity) (io.Reader, error) {
	rest, ok := bytes.CutPrefix(data, []byte(encryptedMagic))
	if !ok {
		if rest, ok = bytes.CutPrefix(data, []byte(magic)); !ok {
			return nil, errors.New("it is no record of a run")
		}
		return bytes.NewReader(rest), nil
	}
	line, rest, found := bytes.Cut(rest, []byte("\n"))
	if !found || len(line) > maxRecipientsLine {
		return nil, ErrDamaged
	}
	encrypted := &EncryptedError{Recipients: strings.Fields(string(line)), Tried: len(identities)}
	for _, text := range encrypted.Recipients {
		if _, err := ParseRecipient(text); err != nil {
			return nil, ErrDamaged
		}
	}
	if len(identities) == 0 {
		return nil, encrypted
	}
	body, err := age.Decrypt(bytes.NewReader(rest), identities...)
	if _, other := errors.AsType[*age.NoIdentityMatchError](err); other {
		return nil, encrypted
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return body, nil
}
