package api_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/api"
)

// issuer publishes a key, and signs with it.
type issuer struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	asked atomic.Int64
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	i := &issuer{key: key}
	mux := http.NewServeMux()
	answer := func(path string, body func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			i.asked.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body())
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}}
	})
	answer("/keys", func() any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}}
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) sign(t *testing.T, key crypto.PrivateKey, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "1"))
	must(t, err)
	all := map[string]any{
		"iss": i.URL, "aud": "quern", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"groups": []string{"staff", "operator"}, "quern_tenants": "*",
	}
	for name, value := range claims {
		all[name] = value
	}
	text, err := jwt.Signed(signer).Claims(all).Serialize()
	must(t, err)
	return text
}

// trusted is a file of tokens that trusts the issuer.
func (i *issuer) trusted(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	must(t, os.WriteFile(path, []byte("oidc: {issuer: "+i.URL+", audience: quern, role_claim: groups, tenants_claim: quern_tenants}"), 0o600))
	return path
}

func TestOIDC(t *testing.T) {
	i := newIssuer(t)
	path := i.trusted(t)
	w := setup(t, access(t, path))
	t.Cleanup(http.DefaultClient.CloseIdleConnections)

	w.token = i.sign(t, i.key, nil)
	if me := get[api.Principal](t, w, "/v1/me"); me.Name != "oidc:ada" || me.Role != api.Operator || len(me.Tenants) != 0 {
		t.Errorf("%+v", me)
	}
	w.token = i.sign(t, i.key, map[string]any{"quern_tenants": []string{"other"}, "groups": "viewer"})
	refused(t, w.do(t, request{method: http.MethodGet, path: "/queues"}), http.StatusForbidden, "may not see tenant")
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	for words, token := range map[string]string{
		"expired":             i.sign(t, i.key, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		"audience":            i.sign(t, i.key, map[string]any{"aud": "another"}),
		"issued by":           i.sign(t, i.key, map[string]any{"iss": "https://example.com"}),
		"signature":           i.sign(t, stranger, nil),
		"names no role":       i.sign(t, i.key, map[string]any{"groups": []string{"staff"}}),
		"or no tenants":       i.sign(t, i.key, map[string]any{"quern_tenants": []string{}}),
		"refused: oidc: malf": "a.b.c",
		"claim sub":           i.sign(t, i.key, map[string]any{"sub": ""}),
		"needs a claim sub":   i.sign(t, i.key, map[string]any{"sub": "ada\nforged"}),
	} {
		w.token = token
		refused(t, w.do(t, request{method: http.MethodGet, path: "/queues"}), http.StatusUnauthorized, words)
	}
}

// Tokens that anybody made up, and edits of the file, do not make the server ask the issuer again and again.
func TestIssuerIsAskedRarely(t *testing.T) {
	i := newIssuer(t)
	path := i.trusted(t)
	w := setup(t, access(t, path))
	known := i.sign(t, i.key, nil)
	w.token = known
	get[api.Principal](t, w, "/v1/me")
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	for range 50 {
		w.token = i.sign(t, stranger, nil)
		refused(t, w.do(t, request{method: http.MethodGet, path: "/v1/me"}), http.StatusUnauthorized, "refused")
	}
	secret := "quern_new"
	sum := sha256.Sum256([]byte(secret))
	amend(t, path, "oidc:", "tokens: [{name: new, role: viewer, sha256: "+hex.EncodeToString(sum[:])+"}]\noidc:")
	w.token = secret
	eventually(t, "the new file", func() bool {
		return w.do(t, request{method: http.MethodGet, path: "/v1/me"}).status == http.StatusOK
	})
	i.Close() // the keys are known
	w.token = known
	get[api.Principal](t, w, "/v1/me")
	if n := i.asked.Load(); n > 10 {
		t.Errorf("the issuer was asked %d times", n)
	}
}

// Whoever sends tokens that were never signed has only some of them checked, and keeps nobody out whose token was right before.
func TestForgedTokensAreCheckedRarely(t *testing.T) {
	i := newIssuer(t)
	path := i.trusted(t)
	log := &lockedBuffer{}
	var who *api.Access
	w := setup(t, access(t, path), func(c *api.Config) {
		who, c.Logger = c.Access, hclog.New(&hclog.LoggerOptions{Output: log})
	})
	known := i.sign(t, i.key, nil)
	w.token = known
	get[api.Principal](t, w, "/v1/me")
	who.CheckUnknown(1e-9) // one, and the next in many years
	parts := strings.Split(known, ".")
	logged := func() bool { return strings.Contains(log.String(), "unknown tokens a second") }
	for n := 0; n < 2 || !logged() && w.ctx.Err() == nil; n++ { // a line a second is logged
		w.token = fmt.Sprintf("%s.%s.%x%s", parts[0], parts[1], n, parts[2][8:])
		a := w.do(t, request{method: http.MethodGet, path: "/v1/me"})
		if want := map[bool]int{true: http.StatusUnauthorized, false: http.StatusTooManyRequests}[n == 0]; a.status != want || n > 0 && a.header.Get("Retry-After") == "" {
			t.Fatalf("token %d: %d %v, want %d", n, a.status, a.header, want)
		}
	}
	if !logged() {
		t.Errorf("the log does not tell of it: %.2000s", log.String())
	}
	w.token = known
	get[api.Principal](t, w, "/v1/me")
}

// A request of nobody known stands in the log of the process, without its token.
func TestStrangersAreLogged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	token(t, path, "ada", api.Admin)
	log := &lockedBuffer{}
	w := setup(t, access(t, path), func(c *api.Config) {
		c.Logger = hclog.New(&hclog.LoggerOptions{Output: log})
	})
	w.token = "quern_guess"
	refused(t, w.do(t, request{method: http.MethodGet, path: "/v1/me"}), http.StatusUnauthorized, "unknown or was revoked")
	if text := log.String(); !strings.Contains(text, "refused a request: from=127.0.0.1 method=GET path=/v1/me") || strings.Contains(text, "guess") {
		t.Errorf("the log is %q", text)
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A server starts while its issuer is away, and says why it refuses its tokens.
func TestAbsentIssuer(t *testing.T) {
	i := newIssuer(t)
	token := i.sign(t, i.key, nil)
	i.Close()
	w := setup(t, access(t, i.trusted(t)))
	w.token = token
	for range 2 {
		refused(t, w.do(t, request{method: http.MethodGet, path: "/queues"}), http.StatusUnauthorized, "cannot be reached")
	}
}

// certify makes a certificate that a parent signed; without one it signs itself.
func certify(t *testing.T, name string, parent *tls.Certificate, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: parent == nil, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, f := range change {
		f(template)
	}
	signer, by := template, crypto.PrivateKey(key)
	if parent != nil {
		signer, by = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, key.Public(), by)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestClientCertificates(t *testing.T) {
	authority, another := certify(t, "authority", nil), certify(t, "another", nil)
	trusted := x509.NewCertPool()
	trusted.AddCert(authority.Leaf)
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	must(t, os.WriteFile(path, []byte("certificates: [{name: deploy, subject: deploy.example.com, role: operator}, {name: b, subject: b.example.com, role: admin}]"), 0o600))
	w := setup(t, access(t, path), func(c *api.Config) {
		c.TLS = &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certify(t, "server", &authority)},
			ClientCAs: trusted, ClientAuth: tls.VerifyClientCertIfGiven,
		}
	})
	connect := func(certificates ...tls.Certificate) *http.Transport {
		return &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted, Certificates: certificates}}
	}
	askBy := func(transport *http.Transport) (int, error) {
		q, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "https://"+w.server.Addr()+"/v1/me", nil)
		must(t, err)
		response, err := (&http.Client{Transport: transport}).Do(q)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body) // so that the connection is used again
		return response.StatusCode, err
	}
	ask := func(certificates ...tls.Certificate) (int, error) {
		transport := connect(certificates...)
		defer transport.CloseIdleConnections()
		return askBy(transport)
	}
	both := certify(t, "deploy.example.com", &authority, func(c *x509.Certificate) { c.DNSNames = []string{"b.example.com"} })
	if status, err := ask(both); status != http.StatusUnauthorized {
		t.Errorf("a client with the names of two gets %d, %v", status, err)
	}
	short := connect(certify(t, "deploy.example.com", &authority, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(2 * time.Second) }))
	defer short.CloseIdleConnections()
	if status, err := askBy(short); status != http.StatusOK {
		t.Errorf("a client whose certificate expires soon gets %d, %v", status, err)
	}
	eventually(t, "a client whose certificate has expired is refused on its connection", func() bool { // a new one is refused without a status
		status, _ := askBy(short)
		return status == http.StatusUnauthorized
	})
	if status, err := ask(certify(t, "deploy.example.com", &authority)); status != http.StatusOK {
		t.Errorf("a known client gets %d, %v", status, err)
	}
	if status, err := ask(certify(t, "somebody", &authority)); status != http.StatusUnauthorized {
		t.Errorf("an unknown client gets %d, %v", status, err)
	}
	if status, err := ask(); status != http.StatusUnauthorized {
		t.Errorf("a client without a certificate gets %d, %v", status, err)
	}
	if status, err := ask(certify(t, "deploy.example.com", &another)); err == nil && status != http.StatusUnauthorized {
		t.Errorf("a client of another authority gets %d", status)
	}
}
