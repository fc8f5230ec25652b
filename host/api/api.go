// Package api serves the HTTP API with which operators and programs look at tenants, queues, tasks, nodes and plugins,
// and change them. It also serves the page for people (package page), which uses only this API. The package keeps no
// state: everything it shows is in Redis, so any number of processes can serve it, with a host or without.
//
// A request passes these steps, each of which may answer it:
//
//	host and origin   without tokens, the host must be loopback; no request from a page of another site; 403, 421
//	page              serves the page's files to everybody; they contain no data
//	path              a problem for unknown paths and methods
//	who               token, OIDC or client certificate; 401
//	rate              how many requests the principal sends per second, and how many at one time; 429
//	ETag              for answers of GET; 304 if the client has the answer
//	trace             a span, if the request changes something or has a traceparent: see package trace
//	may               whether the principal has the operation's role and may see the tenant; 403
//	body              reserves memory, reads the body, and checks it before decoding; 400, 408, 413, 415, 422, 503
//	operation         reserves memory before it reads from Redis; 503
//	audit             records changes in Redis and in the log, and refused changes in the log only
//
// Every error is a problem of RFC 9457. When Redis is away the answer is 503 with Retry-After. A request may be
// repeated if it is a GET or its operation's description says so.
package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/host/web"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	headerTimeout = 5 * time.Second
	// answerTimeout bounds the time for reading a request, and the time for answering it, including waits. Streams set
	// their own deadlines.
	answerTimeout = 2 * time.Minute
	idleTimeout   = 2 * time.Minute

	// maxParameters bounds bodies with tasks, events or an owner's schedules, and each payload in an answer. maxJSON
	// bounds other bodies. Both are in bytes.
	maxParameters = 16 << 20
	maxJSON       = 1 << 20
	// maxMemory bounds the memory that bodies and answers reserve, in bytes, so that slow clients leave the rest of the
	// memory to the host's tasks.
	maxMemory = 256 << 20
	// maxRequests bounds the requests that are answered at one time. Streams of events (maxStreams) and requests that
	// wait for a task (maxWaits) are counted separately.
	// maxLists bounds the lists that are read at one time, which leaves processors to the host's tasks. maxSearches
	// bounds the searches at one time, and maxWorked the jobs on which this process works.
	maxRequests = 1024
	maxStreams  = 256
	maxWaits    = 4096
	maxLists    = 8
	maxSearches = 16
	maxWorked   = 16
	// maxConnections bounds the open connections: it is enough for all waits and streams, and some more. One address,
	// which can be the address of a proxy, may have half of them.
	maxConnections = 5120
	// If there are tokens, one principal may use at most 1/parts of each budget.
	parts = 4
)

// Config states what a Server serves, and to whom.
type Config struct {
	// Clients has one client for each tenant; Stores has the buckets of handlers, by tenant. The caller closes both.
	Clients []*queue.Client
	Stores  map[string]*kv.Store
	// Access decides who may do what. If it is nil, the address must be loopback, and everyone who reaches the address
	// may do everything.
	Access *Access
	TLS    *tls.Config // nil: plain HTTP
	// Account counts the memory of bodies and answers (default: a new account).
	Account *account.Account
	// BasePath, such as /quern, is an additional path below which everything is served too; "" for none.
	BasePath string
	// Logger gets the audit log, warnings and errors.
	Logger hclog.Logger
	// Tracer makes the spans of requests (default: no spans). The caller shuts it down.
	Tracer *trace.Tracer

	jobItems int // maximum number of tasks of a job, set only by tests; 0: manage.MaxJobItems
}

// Server serves the API and the page on one address.
type Server struct {
	*web.Server
	service *service
}

// service is the state that all requests share.
type service struct {
	config  Config
	tenants map[string]*tenant
	api     huma.API
	mux     *http.ServeMux
	limits  limiters
	// strangers bounds the log lines about requests without a known principal.
	strangers *rate.Limiter

	memory                                            *account.Budget
	requests, streams, waits, lists, searches, worked bounded

	jobs sync.WaitGroup // the background jobs of this process
	// living returns a context that ends when the server begins to shut down; jobs and streams stop then. end ends this
	// context.
	living func() context.Context
	end    func()
	// page serves a request if it asks for a file of the page, and reports whether it did.
	page func(w http.ResponseWriter, r *http.Request) bool
}

// tenant is a served tenant, with the state that its requests share.
type tenant struct {
	*admin.Direct
	changes  changes
	findings findings
	unserved unservedQueues
}

// Listen opens the address at once, and Run serves it. Port 0 chooses a free port. Without Access the address must be
// loopback.
func Listen(address string, config Config) (*Server, error) {
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	if config.Access == nil && !isLoopback(address) {
		return nil, fmt.Errorf("address %q can be reached from other machines, and without tokens everyone may do everything: "+
			"use 127.0.0.1, or name a file with --tokens", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", address, err)
	}
	listener = web.Bound(listener, maxConnections, config.Logger)
	if config.TLS != nil {
		listener = tls.NewListener(listener, config.TLS)
	} else if !isLoopback(address) {
		config.Logger.Warn("tokens cross the network unencrypted: name a certificate with --admin-cert, or put a proxy with TLS before it", "admin", address)
	}
	s := newService(config)
	ctx, end := context.WithCancel(context.Background())
	s.living, s.end = func() context.Context { return ctx }, end
	server := &http.Server{
		Handler: below(config.BasePath, s.handler()), ReadHeaderTimeout: headerTimeout, ReadTimeout: answerTimeout,
		WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       config.Logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn}),
	}
	return &Server{web.NewServer(listener, server), s}, nil
}

// checkAddress reports whether an address has a host and the number of a port.
func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil {
		return fmt.Errorf("address %q is no HOST:PORT with a port of 0 to 65535: use one such as 127.0.0.1:9465, or port 0 for a free one",
			address)
	}
	return nil
}

// Run serves requests until ctx ends. Streams and background jobs stop first; another process can continue the jobs.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.service.end)
	defer stop()
	err := s.Server.Run(ctx)
	s.service.end()
	s.service.jobs.Wait()
	return err
}

func newService(config Config) *service {
	if config.Account == nil {
		config.Account = account.New(0)
	}
	s := &service{
		strangers: rate.NewLimiter(1, 20),
		config:    config, tenants: make(map[string]*tenant), mux: http.NewServeMux(),
	}
	s.memory = config.Account.Open(account.Requests, min(maxMemory, config.Account.Part(parts)), s.owners())
	s.requests = s.newBounded("requests", maxRequests)
	s.streams, s.waits = s.newBounded("open streams", maxStreams), s.newBounded("requests that wait for tasks", maxWaits)
	s.lists, s.searches, s.worked = s.newBounded("lists", maxLists), s.newBounded("searches",
		maxSearches), s.newBounded("running jobs", maxWorked)
	for _, client := range config.Clients {
		s.tenants[client.Tenant()] = &tenant{Direct: admin.NewDirect(client, config.Stores[client.Tenant()])}
	}
	about := huma.DefaultConfig("Quern", "1")
	about.Info.Description = "Queues, tasks, nodes and plugins of a fleet. Times are seconds since the epoch, durations seconds, " +
		"sizes bytes; missing values are left out. Names in paths are percent-encoded."
	about.OpenAPIPath, about.DocsPath, about.SchemasPath = "/v1/openapi", "", ""
	about.CreateHooks = nil // no $schema in bodies
	about.Transformers = []huma.Transformer{shorten}
	about.RejectUnknownQueryParameters = true
	about.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}}
	about.Components.SecuritySchemes["certificate"] = &huma.SecurityScheme{Type: "mutualTLS"}
	about.Security = []map[string][]string{{"bearer": {}}, {"certificate": {}}, {}}
	s.api = humago.New(s.mux, about)
	s.api.UseMiddleware(s.traced, s.authorize, s.boundBody)
	s.describeAccess()
	s.describeQueues()
	s.describePauses()
	s.describeUsage()
	s.describeSchedules()
	s.describeTasks()
	s.describeFlows()
	s.describeEnqueue()
	s.describeTopics()
	s.describeFleet()
	s.describeBulk()
	s.describeOverview()
	s.describeStreams()
	return s
}

// operation describes one operation of the API.
type operation struct {
	role               Role
	method, path, name string // name identifies the operation in the audit log and the schema
	summary            string
	maxBody            int64 // maximum size of the body, in bytes; default maxJSON
	copies             int64 // copies of a body that are in memory at once, unless it is JSON with a schema; default 2
	stream             bool  // the answer is a stream of Server-Sent Events
	payloads           bool  // the answer shows what producers and handlers wrote
	traffic            bool  // producers call the operation all the time, so it is not in the audit log
}

// looking returns an operation that only reads. Every role may call it.
func looking(path, name, summary string) operation {
	return operation{role: Viewer, method: http.MethodGet, path: path, name: name, summary: summary}
}

// revealing returns an operation that only reads, for principals that may see what producers and handlers wrote.
func revealing(path, name, summary string) operation {
	o := looking(path, name, summary)
	o.payloads = true
	return o
}

// acting returns an operation for principals that have the role.
func acting(role Role, method, path, name, summary string) operation {
	return operation{role: role, method: method, path: path, name: name, summary: summary}
}

// add registers an operation and the function that carries it out. Errors of the function become problems.
func add[I, O any](s *service, o operation, do func(ctx context.Context, in *I) (*O, error)) {
	if o.maxBody == 0 {
		o.maxBody = maxJSON
	}
	o.copies = max(o.copies, 2)
	op := huma.Operation{
		OperationID: o.name, Method: o.method, Path: "/v1" + o.path, Summary: o.summary,
		Metadata:     map[string]any{"operation": o},
		MaxBodyBytes: o.maxBody + 1, BodyReadTimeout: -1, SkipValidateBody: true, // boundBody reads and checks bodies
		Tags: []string{subject(o.path)},
	}
	if o.stream {
		op.Responses = map[string]*huma.Response{"200": {
			Description: "Server-Sent Events; ping now and then",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}}
	}
	if reflect.TypeFor[O]() == reflect.TypeFor[Bytes]() {
		op.Responses = map[string]*huma.Response{"200": {
			Content: map[string]*huma.MediaType{"application/octet-stream": {
				Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"},
			}},
		}}
	}
	rawBody, isRaw := reflect.TypeFor[I]().FieldByName("RawBody")
	jsonBody, isJSON := reflect.TypeFor[I]().FieldByName("Body")
	if isRaw {
		op.RequestBody = &huma.RequestBody{}
		// Register sets Required. huma would then refuse every raw body as missing, because boundBody has read it already.
		defer func() { op.RequestBody.Required = false }()
	}
	lists := o.method == http.MethodGet && isList(reflect.TypeFor[O]())
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		if lists {
			if err := s.reserve(ctx, listCost); err != nil {
				return nil, err
			}
			place, err := s.lists.enter(ctx)
			if err != nil {
				return nil, err
			}
			defer place.Give()
		}
		if isRaw {
			reflect.ValueOf(in).Elem().FieldByIndex(rawBody.Index).SetBytes(callerOf(ctx).body)
		}
		if isJSON {
			body := reflect.ValueOf(in).Elem().FieldByIndex(jsonBody.Index).Addr().Interface()
			if err := decodeBody(callerOf(ctx), body); err != nil {
				return nil, err
			}
		}
		out, err := do(ctx, in)
		if err != nil {
			return nil, s.problem(ctx, o.name, err)
		}
		if body := reflect.ValueOf(out); !body.IsNil() {
			redact(body.Elem().FieldByName("Body"), principal(ctx).view())
		}
		return out, nil
	})
}

// redact removes from an answer what the principal may not see.
func redact(body reflect.Value, v admin.View) {
	switch body.Kind() {
	case reflect.Pointer:
		redact(body.Elem(), v)
	case reflect.Struct:
		if r, ok := body.Addr().Interface().(interface{ Redact(admin.View) }); ok {
			r.Redact(v)
		} else if items := body.FieldByName("Items"); items.IsValid() {
			for i := range items.Len() {
				redact(items.Index(i), v)
			}
		}
	}
}

// isList reports whether an answer is a list.
func isList(answer reflect.Type) bool {
	body, ok := answer.FieldByName("Body")
	if !ok || body.Type.Kind() != reflect.Struct {
		return false
	}
	_, ok = body.Type.FieldByName("Items")
	return ok
}

// subject returns the tag of the operation with this path: the word after the tenant or, without a tenant, the first
// word.
func subject(path string) string {
	words := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(words) > 2 && words[0] == "tenants" {
		return words[2]
	}
	return words[0]
}

// Queue returns the queue with the given name.
func (t *tenant) Queue(name string) *queue.Queue { return t.Client.Queue(name) }

// InTenant has the path parameter of every operation on a tenant.
type InTenant struct {
	Tenant string `path:"tenant" maxLength:"34" example:"blueque" doc:"The tenant: the key prefix in Redis."`
}

// InQueue has the path parameters of every operation on a queue.
type InQueue struct {
	InTenant
	Queue string `path:"queue" minLength:"1" maxLength:"128" doc:"The queue."`
}

// InTask has the path parameters of every operation on a task.
type InTask struct {
	InTenant
	ID string `path:"id" minLength:"1" maxLength:"128" doc:"The task's ID."`
}

// known returns an error if nobody has used the queue: its name may be misspelled.
func (t *tenant) known(ctx context.Context, name string) error {
	if err := queue.ValidQueue(name); err != nil {
		return err
	}
	all, err := t.Queues(ctx)
	if _, ok := all[name]; err == nil && !ok {
		return typed("no-queue", notFound("tenant %s has no queue %q: nothing was ever enqueued in it, and it has no listener", t.Tenant(), name))
	}
	return err
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
