package signature_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"

	"github.com/quern-project/quern/plugins/signature"
)

// pair is a private key with its public key, as files have them.
type pair struct{ private, public string }

func minisignPair(t *testing.T, password string) pair {
	t.Helper()
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := private.MarshalText()
	if err == nil && password != "" {
		text, err = minisign.EncryptKey(password, private)
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := public.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	return pair{string(text), string(line)}
}

func ecdsaPair(t *testing.T, curve elliptic.Curve) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
	}
}

func key(t *testing.T, name, text string) signature.Key {
	t.Helper()
	k, err := signature.ParseKey(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSign(t *testing.T) {
	t.Parallel()
	text := []byte("quern release of mail\n")
	for name, password := range map[string]string{"minisign": "", "encrypted": "secret", "ecdsa": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if password != "" && testing.Short() {
				t.Skip("minisign takes a gigabyte and seconds to encrypt a key")
			}
			own, other := ecdsaPair(t, elliptic.P256()), ecdsaPair(t, elliptic.P256())
			if name != "ecdsa" {
				own, other = minisignPair(t, password), minisignPair(t, "")
			}
			private, err := signature.ParsePrivate([]byte(own.private), password)
			if err != nil {
				t.Fatal(err)
			}
			signed, err := private.Sign(text)
			if err != nil {
				t.Fatal(err)
			}
			alice, bob := key(t, "alice", own.public), key(t, "bob", other.public)
			if by, err := signature.Check(text, []string{"nonsense", signed}, []signature.Key{bob, alice}); by != "alice" || err != nil {
				t.Errorf("signed by %q, %v", by, err)
			}
			for what, check := range map[string]func() (string, error){
				"other key": func() (string, error) { return signature.Check(text, []string{signed}, []signature.Key{bob}) },
				"other text": func() (string, error) {
					return signature.Check([]byte("x"), []string{signed}, []signature.Key{bob, alice})
				},
				"unsigned": func() (string, error) { return signature.Check(text, nil, []signature.Key{bob, alice}) },
			} {
				if by, err := check(); err == nil || by != "" || !strings.Contains(err.Error(), "bob") {
					t.Errorf("%s: signed by %q, %v", what, by, err)
				}
			}
		})
	}
}

func TestKeysAreChecked(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Empty": "", "Nonsense": "RWnonsense", "Curve": ecdsaPair(t, elliptic.P384()).public, "Private": ecdsaPair(t, elliptic.P256()).private,
	} {
		if _, err := signature.ParseKey("k", text); err == nil {
			t.Errorf("%s is a public key", name)
		}
	}
	for name, text := range map[string]string{
		"Empty": "", "Nonsense": "x", "Curve": ecdsaPair(t, elliptic.P384()).private, "Public": ecdsaPair(t, elliptic.P256()).public,
		"Encrypted": "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n",
	} {
		if _, err := signature.ParsePrivate([]byte(text), ""); err == nil {
			t.Errorf("%s is a private key", name)
		}
	}
}

// What openssl signs, as cosign does, is accepted.
func TestSignedByOpenSSL(t *testing.T) {
	t.Parallel()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	dir := t.TempDir()
	keys := ecdsaPair(t, elliptic.P256())
	for name, text := range map[string]string{"key": keys.private, "text": "statement\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", openssl+" dgst -sha256 -sign key text | "+openssl+" base64 -A")
	cmd.Dir = dir
	signed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if by, err := signature.Check([]byte("statement\n"), []string{string(signed)}, []signature.Key{key(t, "ci", keys.public)}); by != "ci" {
		t.Error(err)
	}
}
