// Package signature signs texts, such as the statements of releases, and checks by whom they were signed. It knows two
// kinds of keys: those of minisign, and ECDSA keys on the curve P-256, as cosign uses them to sign files.
package signature

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"aead.dev/minisign"
)

// Key is a public key with a name.
type Key struct {
	Name string

	minisign *minisign.PublicKey
	ecdsa    *ecdsa.PublicKey // exactly one of both is not nil
}

// KeyRule says how a public key is written.
const KeyRule = "write the line of minisign's public key that begins with RW, or the PEM block of an ECDSA key that begins with -----BEGIN PUBLIC KEY-----"

// ParseKey reads a public key: the last line of a file of minisign, or a PEM block.
func ParseKey(name, text string) (Key, error) {
	text = strings.TrimSpace(text)
	if block, _ := pem.Decode([]byte(text)); block != nil {
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		key, ok := public.(*ecdsa.PublicKey)
		if err != nil || !ok || key.Curve != elliptic.P256() {
			return Key{}, errors.New("is not an ECDSA key on the curve P-256")
		}
		return Key{Name: name, ecdsa: key}, nil
	}
	var key minisign.PublicKey
	if err := key.UnmarshalText([]byte(text)); err != nil {
		return Key{}, errors.New("is not a public key")
	}
	return Key{Name: name, minisign: &key}, nil
}

// verifies reports whether the holder of the key made a signature of a text.
func (k *Key) verifies(text []byte, signature string) bool {
	if k.minisign != nil {
		return minisign.Verify(*k.minisign, text, []byte(signature))
	}
	der, err := base64.StdEncoding.DecodeString(strings.TrimSpace(signature))
	sum := sha256.Sum256(text)
	return err == nil && ecdsa.VerifyASN1(k.ecdsa, sum[:], der)
}

// Check returns the name of a key whose holder made one of the signatures of a text. The error names all keys.
func Check(text []byte, signatures []string, keys []Key) (by string, err error) {
	var names []string
	for i := range keys {
		if slices.ContainsFunc(signatures, func(s string) bool { return keys[i].verifies(text, s) }) {
			return keys[i].Name, nil
		}
		names = append(names, keys[i].Name)
	}
	slices.Sort(names)
	what := "it is not signed"
	if len(signatures) > 0 {
		what = "its signature is of another key, or of other files"
	}
	return "", fmt.Errorf("%s: sign it by `quern plugin sign` with the key of %s, and push it again", what,
		strings.Join(names, ", or "))
}

// Private is a private key.
type Private struct {
	minisign *minisign.PrivateKey
	ecdsa    *ecdsa.PrivateKey // exactly one of both is not nil
}

// ParsePrivate reads a private key: a file of minisign, which may be encrypted with a password, or an ECDSA key in PEM.
func ParsePrivate(text []byte, password string) (Private, error) {
	if block, _ := pem.Decode(text); block != nil {
		if strings.Contains(block.Type, "ENCRYPTED") {
			return Private{}, errors.New("the key is encrypted: sign what `quern plugin sign` prints without --key by `cosign sign-blob --output-signature NAME.sig`")
		}
		key, err := x509.ParseECPrivateKey(block.Bytes)
		if err != nil {
			var other any
			other, err = x509.ParsePKCS8PrivateKey(block.Bytes)
			key, _ = other.(*ecdsa.PrivateKey)
		}
		if err != nil || key == nil || key.Curve != elliptic.P256() {
			return Private{}, cmp.Or(err, errors.New("it is not an ECDSA key on the curve P-256"))
		}
		return Private{ecdsa: key}, nil
	}
	if minisign.IsEncrypted(text) {
		key, err := minisign.DecryptKey(password, text)
		return Private{minisign: &key}, err
	}
	var key minisign.PrivateKey
	if err := key.UnmarshalText(text); err != nil {
		return Private{}, errors.New("it is neither a private key of minisign nor one in PEM")
	}
	return Private{minisign: &key}, nil
}

// Sign signs a text.
func (p Private) Sign(text []byte) (string, error) {
	if p.minisign != nil {
		return string(minisign.Sign(*p.minisign, text)), nil
	}
	sum := sha256.Sum256(text)
	der, err := ecdsa.SignASN1(rand.Reader, p.ecdsa, sum[:])
	return base64.StdEncoding.EncodeToString(der) + "\n", err
}
