package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"
)

// issuer checks the ID tokens of one OIDC issuer with the keys that the issuer publishes. It fetches the keys when the
// first token comes, so that a host can start while the issuer is away.
type issuer struct {
	oidcEntry
	checks   limiters                      // bounds the checks of unknown tokens; the principals are senders' addresses
	mu       sync.Mutex                    // guards the fields below
	verifier *oidc.IDTokenVerifier         // nil until the issuer has answered
	nextTry  time.Time                     // when the issuer may be asked again
	known    map[[sha256.Size]byte]checked // by the SHA-256 of the token
	rate     float64                       // checks per second for one address: checkRate, except in tests
}

// checked is the holder of a token that has passed its check.
type checked struct {
	who    *Principal
	until  time.Time // until then the token is not checked again
	expiry time.Time
}

const (
	issuerTimeout = 5 * time.Second
	issuerPause   = 5 * time.Second
	// The issuer is asked at most issuerBurst times in a row, and then once in issuerPause, because anybody can send
	// tokens with unknown keys.
	issuerBurst = 3
	// checkRate is how many signatures of unknown tokens are checked per second for one address. It bounds what forged
	// tokens cost. A token that has passed is not checked again for checkLife. It counts as known until it expires, and
	// checkRate does not bound known tokens: many users may share the address of a proxy.
	checkRate = 100
	checkLife = time.Minute
	maxKnown  = 10_000
	// maxSubject is the maximum length of the claim sub in OpenID Connect, in bytes.
	maxSubject = 255
	// oidcPrefix begins the names of principals that come from an issuer's tokens.
	oidcPrefix = "oidc:"
)

// rareRequests sends requests to an issuer as often as limiter allows. It refuses further requests.
type rareRequests struct{ limiter *rate.Limiter }

func (f rareRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.limiter.Allow() {
		return nil, errors.New("the issuer was asked a moment ago: try again in some seconds")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// refusedToken is the error for a refused token. The token's sender gets text. The log gets cause, which may contain
// addresses behind the issuer.
type refusedToken struct {
	text  string
	cause error
}

func (e refusedToken) Error() string { return e.text }

// errTooManyTokens is the error for an address that sends too many unknown tokens.
var errTooManyTokens = fmt.Errorf("your address sends more than %d unknown tokens a second: try again", checkRate)

func (i *issuer) identify(ctx context.Context, token, address string, logger hclog.Logger) (*Principal, error) {
	sum := sha256.Sum256([]byte(token))
	i.mu.Lock()
	before, ok := i.known[sum]
	checks := i.rate
	i.mu.Unlock()
	now := time.Now()
	if ok && now.Before(before.until) {
		return before.who, nil
	}
	if isKnown := ok && now.Before(before.expiry); !isKnown && !i.checks.allow(&Principal{Name: address, Rate: checks}) {
		return nil, errTooManyTokens
	}
	who, expiry, err := i.check(ctx, token, logger)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known == nil || len(i.known) >= maxKnown {
		i.known = make(map[[sha256.Size]byte]checked)
	}
	until := time.Now().Add(checkLife)
	if expiry.Before(until) {
		until = expiry
	}
	i.known[sum] = checked{who, until, expiry}
	return who, nil
}

// check verifies a token with the issuer's keys. It returns the token's principal, and the time at which the token
// expires.
func (i *issuer) check(ctx context.Context, token string, logger hclog.Logger) (*Principal, time.Time, error) {
	none := time.Time{}
	verifier, err := i.ready(ctx)
	if err != nil {
		logger.Warn("cannot ask the issuer of tokens for its keys", "issuer", i.Issuer, "error", err)
	}
	if verifier == nil {
		return nil, none, fmt.Errorf("the issuer %s cannot be reached to check the token: try again", i.Issuer)
	}
	idToken, err := verifier.Verify(ctx, token)
	if err != nil {
		why := err.Error()
		if strings.HasPrefix(why, "failed to verify signature") {
			why = "its signature is not right or cannot be checked: the log of this process says why"
		}
		return nil, none, refusedToken{fmt.Sprintf("the token of the issuer %s is refused: %s", i.Issuer, why), err}
	}
	claims := map[string]any{}
	if err := idToken.Claims(&claims); err != nil {
		return nil, none, fmt.Errorf("read claims: %w", err)
	}
	if idToken.Subject == "" || len(idToken.Subject) > maxSubject || oneLine(idToken.Subject) != idToken.Subject {
		return nil, none, fmt.Errorf("the token of the issuer %s needs a claim sub of printable text, up to %d bytes, which tells principals apart", i.Issuer, maxSubject)
	}
	who := &Principal{Name: oidcPrefix + idToken.Subject, Payloads: i.Payloads, Rate: i.Rate}
	for _, role := range roles {
		if slices.Contains(words(claims[cmp.Or(i.RoleClaim, "role")]), string(role)) {
			who.Role = role
		}
	}
	who.Tenants = words(claims[cmp.Or(i.TenantsClaim, "tenants")])
	if who.Role == "" || len(who.Tenants) == 0 {
		return nil, none, fmt.Errorf("the token of %q names no role (claim %s: viewer, operator or admin) or no tenants (claim %s)",
			idToken.Subject, cmp.Or(i.RoleClaim, "role"), cmp.Or(i.TenantsClaim, "tenants"))
	}
	if slices.Contains(who.Tenants, "*") {
		who.Tenants = nil
	}
	return who, idToken.Expiry, nil
}

// ready returns the verifier, or nil while the issuer is away. After a failure, the issuer is asked again after
// issuerPause.
func (i *issuer) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil || time.Now().Before(i.nextTry) {
		return i.verifier, nil
	}
	// The provider keeps the context to fetch keys later.
	client := &http.Client{Timeout: issuerTimeout, Transport: rareRequests{rate.NewLimiter(rate.Every(issuerPause),
		issuerBurst)}}
	provider, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), client), i.Issuer)
	if err != nil {
		i.nextTry = time.Now().Add(issuerPause)
		return nil, err
	}
	i.verifier = provider.Verifier(&oidc.Config{ClientID: i.Audience})
	return i.verifier, nil
}

// words returns the words of a claim, which is a list, or a text with spaces between words.
func words(claim any) (list []string) {
	switch claim := claim.(type) {
	case string:
		return strings.Fields(claim)
	case []any:
		for _, one := range claim {
			if text, ok := one.(string); ok {
				list = append(list, text)
			}
		}
	}
	return list
}
