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

// issuer checks the ID tokens of one OIDC issuer, with the keys that it publishes. They are fetched at the first token, so that a
// host starts while the issuer is away.
type issuer struct {
	oidcEntry
	checks   limiters              // of tokens that are not known, by address
	mu       sync.Mutex            // guards what follows
	verifier *oidc.IDTokenVerifier // nil until the issuer has answered
	again    time.Time             // when to ask it next
	known    map[[sha256.Size]byte]checked
	rate     float64 // of checks: checkRate, but for a test
}

// checked is the holder of a token whose signature was right.
type checked struct {
	who    *Principal
	until  time.Time // it is not checked again
	expiry time.Time
}

const (
	issuerTimeout = 5 * time.Second
	issuerPause   = 5 * time.Second
	// issuerBurst is how often the issuer is asked in a row, and then every issuerPause: anybody can send tokens of unknown keys.
	issuerBurst = 3
	// checkRate is how many signatures of unknown tokens a second are checked for one address: whoever sends tokens that were never
	// signed costs no more. A token that was right is not checked again for checkLife, and counts as known until it expires: many
	// users come from the address of a proxy.
	checkRate = 100
	checkLife = time.Minute
	mostKnown = 10_000
	// mostSubject is what OpenID Connect allows a sub, in bytes.
	mostSubject = 255
	// oidcPrefix begins the names of principals that an issuer tells.
	oidcPrefix = "oidc:"
)

// rareRequests asks an issuer only so often.
type rareRequests struct{ limiter *rate.Limiter }

func (f rareRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.limiter.Allow() {
		return nil, errors.New("it was asked a moment ago: try again in some seconds")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// refusedToken is why a token is refused, as its sender may know it; cause may name addresses behind the issuer.
type refusedToken struct {
	text  string
	cause error
}

func (e refusedToken) Error() string { return e.text }

// errTooManyTokens refuses an address that sends many tokens which are not known.
var errTooManyTokens = fmt.Errorf("more than %d tokens a second that are not known come from your address: try again", checkRate)

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
	if i.known == nil || len(i.known) >= mostKnown {
		i.known = make(map[[sha256.Size]byte]checked)
	}
	until := time.Now().Add(checkLife)
	if expiry.Before(until) {
		until = expiry
	}
	i.known[sum] = checked{who, until, expiry}
	return who, nil
}

// check asks the keys of the issuer about a token.
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
	if idToken.Subject == "" || len(idToken.Subject) > mostSubject || oneLine(idToken.Subject) != idToken.Subject {
		return nil, none, fmt.Errorf("the claim sub of the token of the issuer %s is missing or no printable text of up to %d bytes: it tells principals apart", i.Issuer, mostSubject)
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

// ready makes the verifier; nil while the issuer is away, which it is asked at most once in issuerPause.
func (i *issuer) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil || time.Now().Before(i.again) {
		return i.verifier, nil
	}
	// The provider keeps the context for later fetches of keys.
	client := &http.Client{Timeout: issuerTimeout, Transport: rareRequests{rate.NewLimiter(rate.Every(issuerPause), issuerBurst)}}
	provider, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), client), i.Issuer)
	if err != nil {
		i.again = time.Now().Add(issuerPause)
		return nil, err
	}
	i.verifier = provider.Verifier(&oidc.Config{ClientID: i.Audience})
	return i.verifier, nil
}

// words are the texts of a claim: one, several separated by spaces, or a list.
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
