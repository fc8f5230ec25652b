package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/hashicorp/go-hclog"
	"go.yaml.in/yaml/v3"
	"golang.org/x/time/rate"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/plugins/strictyaml"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Role states what a principal may do. Each role includes the rights of the roles before it.
type Role string

// The roles.
const (
	// Viewer may read everything except the audit log.
	Viewer Role = "viewer"
	// Operator may enqueue and publish; cancel, retry and replay; pause and resume queues and subscriptions; limit
	// queues; change and delete schedules; run jobs.
	Operator Role = "operator"
	// Admin may delete tasks and purge queues; make, change and delete subscriptions; drain and reclaim nodes; release
	// plugins from quarantine, push releases of plugins and roll them back; read the audit log.
	Admin Role = "admin"
)

var roles = []Role{Viewer, Operator, Admin}

// Principal is the sender of a request, with its permissions. An entry of the --tokens file has these keys.
type Principal struct {
	Name string `yaml:"name" json:"name" doc:"What the audit log calls it."`
	Role Role   `yaml:"role" json:"role" enum:"viewer,operator,admin"`
	// Tenants lists the tenants that the principal may see; if it is empty, the principal may see all.
	Tenants []string `yaml:"tenants,omitempty" json:"tenants,omitempty" doc:"Tenants that it may see; missing: all."`
	// Payloads, if false, hides parameters, results, logs, stderr and values of handlers (default: true).
	Payloads *bool `yaml:"payloads,omitempty" json:"payloads,omitempty" doc:"False: parameters, results, logs, stderr and values of handlers are hidden from it."`
	// Rate is the maximum number of requests per second (default: defaultRate).
	Rate float64 `yaml:"rate,omitempty" json:"rate,omitempty" doc:"Requests a second."`
}

const defaultRate = 1000

func (p *Principal) rate() float64 { return cmp.Or(p.Rate, defaultRate) }

// reads reports whether the principal may see what producers and handlers wrote.
func (p *Principal) reads() bool { return p.Payloads == nil || *p.Payloads }

// view returns what the principal may see.
func (p *Principal) view() admin.View {
	return admin.View{Payloads: p.reads(), Webhooks: p.reads() || p.Role == Admin}
}

// owner returns the name under which budgets count what the principal uses. Principals that are limited to the same
// tenants share one name; otherwise many tokens of one tenant could use up the budgets.
func (p *Principal) owner() string {
	if len(p.Tenants) == 0 {
		return p.Name
	}
	return "tenants " + strings.Join(slices.Sorted(slices.Values(p.Tenants)), " ")
}

func (p *Principal) sees(tenant string) bool {
	return len(p.Tenants) == 0 || slices.Contains(p.Tenants, tenant)
}

func (p *Principal) validate() error {
	switch {
	case p.Name == "":
		return errors.New("an entry has no name: the audit log needs one")
	case strings.HasPrefix(p.Name, oidcPrefix):
		return fmt.Errorf("entry %q: names that begin with %s are reserved for tokens of the issuer: choose another", p.Name,
			oidcPrefix)
	case !slices.Contains(roles, p.Role):
		return fmt.Errorf("entry %q: role %q: use viewer, operator or admin", p.Name, p.Role)
	case p.Rate < 0:
		return fmt.Errorf("entry %q: rate %g: use the number of requests a second, or leave it out for %d", p.Name, p.Rate,
			defaultRate)
	}
	for _, tenant := range p.Tenants {
		if queue.ValidTenant(tenant) != nil {
			return fmt.Errorf("entry %q: tenant %q: use names of tenants, or leave tenants out for all", p.Name, tenant)
		}
	}
	return nil
}

// accessFile is the content of the --tokens file.
type accessFile struct {
	Tokens       []tokenEntry       `yaml:"tokens"`
	Certificates []certificateEntry `yaml:"certificates"`
	OIDC         *oidcEntry         `yaml:"oidc"`
}

type tokenEntry struct {
	Principal `yaml:",inline"`
	// SHA256 is the SHA-256 of the token, in hex.
	SHA256  string    `yaml:"sha256"`
	Expires time.Time `yaml:"expires,omitempty"`
}

// certificateEntry is the entry for the holder of a client certificate that the authority of --admin-ca signed.
type certificateEntry struct {
	Principal `yaml:",inline"`
	// Subject is the certificate's common name, or one of its DNS names.
	Subject string `yaml:"subject"`
}

// oidcEntry makes the server trust the ID tokens that an issuer made for an audience. The claims of a token name its
// holder's role and tenants; a token that lacks one of these claims is refused.
type oidcEntry struct {
	Issuer   string `yaml:"issuer"`
	Audience string `yaml:"audience"`
	// RoleClaim is the claim with the role (default "role"). If the claim has several roles, the highest counts.
	RoleClaim string `yaml:"role_claim"`
	// TenantsClaim is the claim that lists the tenants, or has "*" for all tenants (default "tenants").
	TenantsClaim string  `yaml:"tenants_claim"`
	Payloads     *bool   `yaml:"payloads"`
	Rate         float64 `yaml:"rate"`
}

// maxAccess is the maximum size of the --tokens file, in bytes. It is enough for some 10,000 principals.
const maxAccess = 4 << 20

var errNobody = errors.New("it has no tokens, certificates or oidc, so nobody may do anything: add the lines that `quern admin token` prints")

func parseAccess(text []byte) (*accessFile, error) {
	root, err := strictyaml.Parse(text, strictyaml.Limits{Bytes: maxAccess, Values: maxAccess / 16})
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, errNobody
	}
	if err := emptyTenants(root); err != nil {
		return nil, err
	}
	file := &accessFile{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(file); err != nil {
		return nil, err
	}
	seen, named := map[string]bool{}, map[string]bool{}
	once := func(p *Principal) error {
		if err := p.validate(); err != nil {
			return err
		}
		if named[p.Name] {
			return fmt.Errorf("entry %q: another entry has the same name: give each its own, by which the audit log and the rates tell them apart", p.Name)
		}
		named[p.Name] = true
		return nil
	}
	for i := range file.Tokens {
		t := &file.Tokens[i]
		if err := once(&t.Principal); err != nil {
			return nil, err
		}
		t.SHA256 = strings.ToLower(t.SHA256)
		sum, err := hex.DecodeString(t.SHA256)
		switch {
		case err != nil || len(sum) != sha256.Size:
			return nil, fmt.Errorf("token %q: sha256: use the 64 hex digits that `quern admin token` prints, not the token itself", t.Name)
		case seen[t.SHA256]:
			return nil, fmt.Errorf("token %q: another entry has the same sha256: give each a token of its own", t.Name)
		}
		seen[t.SHA256] = true
	}
	for i := range file.Certificates {
		c := &file.Certificates[i]
		if err := once(&c.Principal); err != nil {
			return nil, err
		}
		if c.Subject == "" {
			return nil, fmt.Errorf("certificate %q: subject is missing: use the certificate's common name or a DNS name", c.Name)
		}
	}
	if o := file.OIDC; o != nil && (o.Issuer == "" || o.Audience == "") {
		return nil, errors.New("oidc: issuer and audience are both needed")
	}
	if len(file.Tokens)+len(file.Certificates) == 0 && file.OIDC == nil {
		return nil, errNobody
	}
	return file, nil
}

// emptyTenants returns an error if a list of tenants is empty, as a template may render it. Decoded, an empty list
// would mean all tenants.
func emptyTenants(n *yaml.Node) error {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Value == "tenants" {
			if len(n.Content[i+1].Content) == 0 {
				return fmt.Errorf("line %d: tenants is empty: name some, or leave tenants out for all", child.Line)
			}
		}
		if err := emptyTenants(child); err != nil {
			return err
		}
	}
	return nil
}

// Access knows the principals of the --tokens file. It is safe for concurrent use.
type Access struct {
	path   string
	logger hclog.Logger

	mu      sync.Mutex  // guards the fields below
	file    *accessFile // the last valid content
	text    []byte      // the content that was read last; it can be invalid
	wrong   error       // why text is invalid; nil if it is valid
	logged  string      // the error that was logged last; "" since the file got new valid content
	checked time.Time   // when the file was last read
	issuer  *issuer     // the issuer that file names; nil until the first request
}

// accessAge is how old the content of the --tokens file that authorizes a request can be.
const accessAge = time.Second

// LoadAccess reads the --tokens file. Changes of the file take effect by themselves. While the file cannot be read or
// is invalid, its last valid content counts. But if its last entry is removed, nobody has access.
func LoadAccess(path string, logger hclog.Logger) (*Access, error) {
	a := &Access{path: path, logger: logger}
	_, err := a.load()
	return a, err
}

// load reads the file, and reports whether the file has new valid content.
func (a *Access) load() (changed bool, err error) {
	opened, err := os.Open(a.path)
	if err != nil {
		return false, err
	}
	defer opened.Close()
	text, err := io.ReadAll(io.LimitReader(opened, maxAccess+1))
	if err != nil {
		return false, err
	}
	if a.text != nil && bytes.Equal(text, a.text) {
		return false, a.wrong
	}
	file, err := parseAccess(text)
	a.text, a.wrong = text, err
	if errors.Is(err, errNobody) {
		a.file, a.issuer = &accessFile{}, nil
	}
	if err != nil {
		return false, err
	}
	if a.issuer != nil && !reflect.DeepEqual(file.OIDC, &a.issuer.oidcEntry) { // an unchanged issuer keeps its keys
		a.issuer = nil
	}
	a.file = file
	return true, nil
}

// current returns the content of the file, at most accessAge old, and the issuer that it names.
func (a *Access) current() (*accessFile, *issuer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.checked) > accessAge {
		a.checked = time.Now()
		changed, err := a.load()
		switch {
		case err != nil && err.Error() != a.logged:
			a.logged = err.Error()
			if errors.Is(err, errNobody) {
				a.logger.Warn("the file of tokens admits nobody now", "file", a.path, "error", err)
			} else {
				a.logger.Warn("cannot use the file of tokens as it is now; its last good content counts", "file", a.path,
					"error", err)
			}
		case changed:
			a.logged = ""
			a.logger.Info("read the changed file of tokens", "file", a.path)
		}
	}
	if a.issuer == nil && a.file.OIDC != nil {
		a.issuer = &issuer{oidcEntry: *a.file.OIDC, rate: checkRate}
	}
	return a.file, a.issuer
}

// everyone is the principal of each request to a server without Access.
var everyone = &Principal{Name: "local", Role: Admin}

var errNoToken = errors.New("no token: send the header Authorization: Bearer TOKEN, or a client certificate")

// identify returns the principal of a request.
func (a *Access) identify(r *http.Request) (*Principal, error) {
	if a == nil {
		return everyone, nil
	}
	file, issuer := a.current()
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "Bearer") {
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			return file.holder(r.TLS.VerifiedChains[0][0])
		}
		return nil, errNoToken
	}
	sum := sha256.Sum256([]byte(token))
	hash := hex.EncodeToString(sum[:])
	// This comparison can leak bytes of a hash, but not of a token.
	i := slices.IndexFunc(file.Tokens, func(t tokenEntry) bool { return t.SHA256 == hash })
	switch {
	case i >= 0 && !file.Tokens[i].Expires.IsZero() && time.Now().After(file.Tokens[i].Expires):
		return nil, fmt.Errorf("token %q expired at %s: ask for a new one", file.Tokens[i].Name,
			file.Tokens[i].Expires.Format(time.RFC3339))
	case i >= 0:
		return &file.Tokens[i].Principal, nil
	case issuer != nil && strings.Count(token, ".") == 2:
		return issuer.identify(r.Context(), token, withoutPort(r.RemoteAddr), a.logger)
	}
	return nil, errors.New("the token is unknown or was revoked: ask for a new one")
}

// holder returns the principal of a client certificate. The certificate may have expired since its connection began.
func (f *accessFile) holder(certificate *x509.Certificate) (*Principal, error) {
	name := certificate.Subject.CommonName
	switch {
	case time.Now().After(certificate.NotAfter):
		return nil, fmt.Errorf("the client certificate of %q expired at %s: use a new one", name,
			certificate.NotAfter.Format(time.RFC3339))
	case certificate.IsCA:
		return nil, fmt.Errorf("the client certificate of %q is the certificate of an authority: use one that the authority signed", name)
	}
	var found *certificateEntry
	for i := range f.Certificates {
		c := &f.Certificates[i]
		switch is := c.Subject == name || slices.Contains(certificate.DNSNames, c.Subject); {
		case is && found != nil:
			return nil, fmt.Errorf("the client certificate of %q matches two entries, %q and %q: use one that matches a single entry", name, found.Name, c.Name)
		case is:
			found = c
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no entry for the client certificate of %q: add one to certificates in the file of --tokens",
			name)
	}
	return &found.Principal, nil
}

// NewToken makes a token. lines is its entry, to be put below tokens in the --tokens file. The token expires after the
// duration lasts, or never if lasts is 0.
func NewToken(name string, role Role, tenants []string, lasts time.Duration) (token, lines string, err error) {
	token = "quern_" + rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(token))
	entry := tokenEntry{Principal: Principal{Name: name, Role: role, Tenants: tenants}, SHA256: hex.EncodeToString(sum[:])}
	if lasts > 0 {
		entry.Expires = time.Now().Add(lasts).UTC().Truncate(time.Second)
	}
	text, err := yaml.Marshal([]tokenEntry{entry})
	return token, string(text), cmp.Or(entry.validate(), err)
}

// caller is the sender of a request, with the request's state.
type caller struct {
	*Principal
	detail string         // for the audit log: what the request asks for in addition to its path
	memory *account.Share // the memory that is reserved for the body and the answer
	body   []byte         // the request's body, as received
	place  *account.Share // the request's place among maxRequests; the request gives it back while it only waits
}

type callerKey struct{}

// principal returns the sender of the request to which ctx belongs.
func principal(ctx context.Context) *Principal { return callerOf(ctx).Principal }

func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// limiters bounds how many requests each principal sends per second.
type limiters struct {
	mu     sync.Mutex
	byName map[string]*rate.Limiter // guarded by mu
}

// maxLimiters is the maximum size of limiters.byName, because an issuer can have many subjects. When the map is full,
// it is emptied, and every principal starts anew.
const maxLimiters = 10_000

func (l *limiters) allow(who *Principal) bool {
	if who == everyone {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := rate.Limit(who.rate())
	limiter := l.byName[who.Name]
	if limiter == nil || limiter.Limit() != limit {
		if l.byName == nil || len(l.byName) >= maxLimiters {
			l.byName = make(map[string]*rate.Limiter)
		}
		limiter = rate.NewLimiter(limit, max(1, int(2*limit)))
		l.byName[who.Name] = limiter
	}
	return limiter.Allow()
}

// operationOf returns the operation that a request calls, as it was passed to add.
func operationOf(ctx huma.Context) operation {
	o, _ := ctx.Operation().Metadata["operation"].(operation)
	return o
}

// authorize checks that the principal may call the operation for the tenant. It records operations that change
// something.
func (s *service) authorize(ctx huma.Context, next func(huma.Context)) {
	o := operationOf(ctx)
	who := principal(ctx.Context())
	tenant := ctx.Param("tenant")
	acts := ctx.Method() != http.MethodGet && ctx.Method() != http.MethodHead
	switch {
	case tenant != "" && !who.sees(tenant):
		s.refuse(ctx, http.StatusForbidden, "%s may not see tenant %q, only %s", who.Name, tenant,
			strings.Join(who.Tenants, ", "))
	case slices.Index(roles, who.Role) < slices.Index(roles, o.role):
		s.refuse(ctx, http.StatusForbidden, "%s has the role %s: %s needs the role %s", who.Name, who.Role, o.name, o.role)
	case o.payloads && !who.reads():
		s.refuse(ctx, http.StatusForbidden, "%s may not see parameters, results, logs and values of handlers (payloads: false)", who.Name)
	case tenant != "" && s.tenants[tenant] == nil: // operations rely on s.tenants[tenant]
		seen := slices.DeleteFunc(slices.Sorted(maps.Keys(s.tenants)), func(name string) bool { return !who.sees(name) })
		remedy := "add it to --tenants of the process that serves the API"
		if len(seen) > 0 {
			remedy = "use one of " + strings.Join(seen, ", ") + ", or " + remedy
		}
		s.refuse(ctx, http.StatusNotFound, "tenant %q is not served here: %s", tenant, remedy)
	default:
		if wrong := wrongQuery(ctx); wrong != "" {
			s.refuse(ctx, http.StatusUnprocessableEntity, "query.%s", wrong)
			return
		}
		status := http.StatusInternalServerError // the status if the operation panics
		if acts && !o.traffic {
			defer func() { s.record(ctx, who, o, tenant, status) }()
		}
		next(ctx)
		status = ctx.Status()
		return
	}
	if acts { // a refused principal must not fill a tenant's audit log
		s.record(ctx, who, o, "", ctx.Status())
	}
}

// record writes an action to the log of the process and, unless name is empty, to the audit log of the tenant name.
func (s *service) record(ctx huma.Context, who *Principal, o operation, name string, status int) {
	from := withoutPort(ctx.RemoteAddr())
	on := ""
	for _, part := range []string{"queue", "id", "listener", "plugin", "job", "schedule", "topic", "subscription"} {
		if value := ctx.Param(part); value != "" {
			on = part + " " + value
		}
	}
	entry := manage.AuditEntry{
		Who: who.Name, Action: o.name, On: on, From: from, Status: status, Detail: callerOf(ctx.Context()).detail,
	}
	s.config.Logger.Info("audit", "who", oneLine(entry.Who), "action", entry.Action, "tenant", name,
		"on", oneLine(entry.On), "from", entry.From,
		"status", entry.Status, "detail", oneLine(entry.Detail))
	t := s.tenants[name]
	if t == nil {
		return
	}
	// The action is done: record it even if the client has gone.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx.Context()), 5*time.Second)
	defer cancel()
	if err := t.Audit(within, entry); err != nil {
		s.config.Logger.Error("cannot write the audit log of the tenant", "tenant", name, "error", err)
	}
}

// wrongQuery returns what is wrong with a query parameter that the check of the schema lets pass: a number that is NaN
// or infinite, or an empty value that may not be empty. It returns "" if there is none.
func wrongQuery(ctx huma.Context) string {
	u := ctx.URL()
	query := u.Query()
	for _, p := range ctx.Operation().Parameters {
		if p.In != "query" {
			continue
		}
		n, err := strconv.ParseFloat(query.Get(p.Name), 64)
		if p.Schema.Type == huma.TypeNumber && err == nil && (math.IsNaN(n) || math.IsInf(n, 0)) {
			return p.Name + " is no number: use digits, such as 1.5"
		}
		if p.Schema.MinLength != nil && *p.Schema.MinLength > 0 && query.Has(p.Name) && query.Get(p.Name) == "" {
			return p.Name + " is empty: give it a value, or leave it out"
		}
	}
	return ""
}

// withoutPort returns the host of an address.
func withoutPort(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

func (s *service) describeAccess() {
	add(s, looking("/me", "show-me", "Show who you are and what you may do"),
		func(ctx context.Context, _ *struct{}) (*Of[Principal], error) {
			return &Of[Principal]{*principal(ctx)}, nil
		})
}
