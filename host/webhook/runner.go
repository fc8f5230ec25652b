package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// PluginName is the plugin name of deliveries in tasks and metrics.
const PluginName = "webhook"

const (
	// lookInterval is how often a runner looks for subscriptions that are new, changed or gone.
	lookInterval = time.Second
	// joinPause is the wait after a session that failed. It doubles with each further failure in a row, up to
	// maxJoinPause.
	joinPause    = time.Second
	maxJoinPause = 30 * time.Second
)

// defaultRetry is the retry policy of deliveries whose subscription has none. Its attempts take over a day.
var defaultRetry = queue.Retry{MaxAttempts: 16, Base: 5 * time.Second, Max: 6 * time.Hour} //nolint:gochecknoglobals // read only

// Config configures a Runner. HTTP, Secret and Metrics are required.
type Config struct {
	// HTTP sends the requests. It is not the client of the handlers, because a slow server must not take the handlers'
	// connections. It must also keep the beginning of long answers (egress.Config.Truncate).
	HTTP *egress.Client
	// Ceiling lists the requests that the host allows the tenant; nil allows all.
	Ceiling *egress.Ceiling
	// Secret reads a secret of the tenant. Secrets is the folder in which the host looks for it, for the log; "" if there
	// is none.
	Secret  func(name string) ([]byte, error)
	Secrets string
	// SecretNames lists the names of the tenant's secrets. The host publishes those that webhooks can use (default: none).
	SecretNames func() []string
	// TellSecrets lets the errors of deliveries name that folder too, which the tenant sees.
	TellSecrets bool
	// Ended is called at the end of each delivery (default: none). The log then leaves failures to it.
	Ended func(Ended)
	// Small is the budget for the memory of deliveries whose payload comes with the reserve. Large is the budget for the
	// other deliveries (default for both: no bound).
	Small, Large *account.Budget
	// Places is the maximum number of deliveries that run at one time (default 400). Destination is the maximum number of
	// these that go to one destination (default 50).
	Places, Destination int
	// Off is how long a destination is switched off at first, after several failed deliveries in a row (default 30 s).
	Off time.Duration
	// Grace is how long running deliveries may go on when the runner is to end (default 30 s).
	Grace time.Duration
	// Poll is how often the runner looks for tasks that no message announced (default 5 s).
	Poll time.Duration
	// MaxQueues is how many webhooks have their own series in the metrics (default 1,000); all others share one series.
	MaxQueues int
	// Version is the program's version, and Name a name of the host for people. Both are published.
	Version, Name string
	Metrics       *metrics.Metrics // counts deliveries like tasks
	Tracer        *trace.Tracer    // default: none; the caller closes it
	Logger        hclog.Logger     // default: none
}

// Ended describes the end of a delivery.
type Ended struct {
	Queue, ID string
	Status    int // of the response; 0 if there was none
	Took      time.Duration
	Failure   *queue.Failure // nil if it was delivered
	Again     bool           // it will be tried again
	PutOffs   int            // how many times it was put off, if it was put off now, too; otherwise 0
}

func (c Config) withDefaults() Config {
	c.Places = cmp.Or(c.Places, 400)
	c.Destination = cmp.Or(c.Destination, 50)
	c.Off = cmp.Or(c.Off, 30*time.Second)
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.Poll = cmp.Or(c.Poll, 5*time.Second)
	c.MaxQueues = cmp.Or(c.MaxQueues, 1000)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// A delivery whose secret is missing is put off for secretDelay, and longer each time, up to longestSecretDelay.
const secretDelay, longestSecretDelay = time.Second, time.Minute

// Runner delivers the webhooks of a tenant.
type Runner struct {
	client *queue.Client
	config Config
	logger hclog.Logger

	mu           sync.Mutex                  // guards the fields below
	open         int                         // places taken for deliveries to all destinations
	hooks        map[string]hook             // by queue
	held         map[string]time.Time        // by queue: until when nothing is reserved from it; see hold
	failing      map[string]string           // by subscription: why its last delivery failed; see tellOnce
	destinations map[string]*destination     // by name; they outlive sessions
	paid         map[string][]*account.Share // by queue: memory of the places that no delivery has used yet
	shown        map[string]bool             // queues that have metric series
}

// otherQueues is the queue name in the metrics for all webhooks that have no series themselves.
const otherQueues = queue.WebhookQueues + "*"

// show creates the metric series of a queue, unless there are too many series. To make room it drops the series of
// deleted webhooks. It returns the name under which metrics have the queue. The caller holds the mutex.
func (r *Runner) show(name string) string {
	if r.shown[name] {
		return name
	}
	if len(r.shown) >= r.config.MaxQueues {
		for old := range r.shown {
			if _, is := r.hooks[old]; !is {
				r.config.Metrics.QueueForgotten(r.client.Tenant(), old)
				delete(r.shown, old)
			}
		}
	}
	if len(r.shown) >= r.config.MaxQueues {
		name = otherQueues // not added to shown, because this series stays
	} else {
		r.shown[name] = true
	}
	r.config.Metrics.QueueServed(r.client.Tenant(), name, PluginName)
	return name
}

// hook is a subscription with a webhook.
type hook struct {
	subscription queue.Subscription
	destination  string
}

// delivery is a task that runs.
type delivery struct {
	listen.Task
	queue string
	took  time.Duration // set when it has run
	code  int           // status of the response; 0 if there was none
	share *account.Share
	span  *trace.Span // nil if there is no tracer
}

// New makes a runner for the tenant of the client. The caller closes the client.
func New(client *queue.Client, config Config) *Runner {
	config = config.withDefaults()
	return &Runner{
		client: client, config: config, logger: config.Logger.With("tenant", client.Tenant()),
		hooks: make(map[string]hook), held: make(map[string]time.Time), destinations: make(map[string]*destination),
		paid:  make(map[string][]*account.Share),
		shown: make(map[string]bool), failing: make(map[string]string),
	}
}

// Run delivers until ctx ends. Then it reserves nothing more, waits for running deliveries for the grace period or
// until hurry ends, and returns unfinished deliveries to their queues. The runner is registered as a listener only
// while the tenant has webhooks. When an operator drains the listener, Run returns.
func (r *Runner) Run(ctx, hurry context.Context) {
	pause, logged := periodic.Pause{Shortest: joinPause, Longest: maxJoinPause}, false
	for ctx.Err() == nil {
		err := r.look(ctx)
		if err != nil && !logged && ctx.Err() == nil && !queue.IsUnavailable(err) {
			r.logger.Error("webhooks are not delivered: repair the key or the Redis user that the error names; retrying",
				"error", err)
		}
		logged = err != nil && (logged || !queue.IsUnavailable(err))
		if err != nil || len(r.queues()) == 0 {
			periodic.Sleep(ctx, lookInterval+r.config.Poll/5)
			continue
		}
		begun := time.Now()
		err = newSession(r).run(ctx, hurry)
		if ctx.Err() != nil || errors.Is(err, errDrained) {
			return
		}
		if time.Since(begun) > maxJoinPause {
			pause.Succeeded()
		}
		if err != nil {
			r.logger.Warn("deliveries of webhooks pause; retrying", "error", err)
			pause.Sleep(ctx)
		}
	}
}

// look reads the subscriptions. The runner serves the queue of each webhook, unless the webhook's server answered 410
// Gone; then the tasks wait.
func (r *Runner) look(ctx context.Context) error {
	all, err := r.client.Subscriptions(ctx)
	if err != nil && all == nil {
		return err
	}
	hooks, named := make(map[string]hook), make(map[string]bool)
	for _, s := range all {
		if s.Webhook != nil && (s.Active || s.Reason != queue.ReasonGone) {
			h := hook{s, s.Webhook.Origin()}
			hooks[s.Queue], named[h.destination] = h, true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.held {
		before, was := r.hooks[name]
		if now, is := hooks[name]; !was || !is || before.subscription.Webhook.URL != now.subscription.Webhook.URL {
			delete(r.held, name) // the pause was for another server
		}
	}
	r.hooks = hooks
	maps.DeleteFunc(r.failing, func(id, _ string) bool { _, is := hooks[queue.WebhookQueues+id]; return !is })
	for name := range hooks {
		r.show(name)
	}
	for name, d := range r.destinations {
		if d.open == 0 && !named[name] { // no delivery would test it any more
			delete(r.destinations, name)
		}
	}
	r.countOff()
	return nil
}

// countOff counts the destinations that are switched off. The caller holds the mutex.
func (r *Runner) countOff() {
	count := 0
	for _, d := range r.destinations {
		if !d.since.IsZero() {
			count++
		}
	}
	r.config.Metrics.DestinationsOff(r.client.Tenant(), count)
}

// queues lists the served queues, sorted.
func (r *Runner) queues() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.hooks {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// destination returns the destination with this name, and makes it if there is none. The caller holds the mutex.
func (r *Runner) destination(name string) *destination {
	d := r.destinations[name]
	if d == nil {
		d = &destination{label: name, least: r.config.Off}
		r.destinations[name] = d
	}
	return d
}

// placeBytes is the memory of a delivery without a large payload, in bytes: a payload that came with the reserve, its
// event, the answer and the result.
const placeBytes = 2*listen.MaxInline + 3*MaxAnswer

// maxPayload is the largest payload that is delivered, in bytes, unless the budget has room for larger ones.
const maxPayload = 64 << 20

// cost returns the memory of a delivery with a large payload, in bytes: the payload from Redis, the payload as a
// string, and the event.
func cost(payload int64) int64 { return 3*payload + placeBytes }

// take takes the places that are free for deliveries of a queue, with memory for each, and returns their number.
func (r *Runner) take(name string, now time.Time) (places int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, served := r.hooks[name]
	if !served || now.Before(r.held[name]) {
		return 0
	}
	delete(r.held, name)
	d := r.destination(h.destination)
	places = max(0, min(d.room(r.config.Destination, now), r.config.Places-r.open, listen.MaxReserve))
	for i := range places {
		share := r.config.Small.TryTake(r.client.Tenant(), placeBytes)
		if share == nil {
			places = i
			break
		}
		r.paid[name] = append(r.paid[name], share)
	}
	d.begin(places)
	r.open += places
	return places
}

// paidFor removes and returns the memory of one of the places that were taken for a queue. It returns nil if there is
// none, because adopted found no memory for a task that was already held. The caller holds the mutex.
func (r *Runner) paidFor(name string) *account.Share {
	shares := r.paid[name]
	if len(shares) == 0 {
		return nil
	}
	last := len(shares) - 1
	if r.paid[name] = shares[:last]; last == 0 {
		delete(r.paid, name)
	}
	return shares[last]
}

// free gives back places that were taken for a queue and are not needed, with their memory.
func (r *Runner) free(name string, places int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range places {
		r.paidFor(name).Give()
	}
	if d := r.destinations[r.hooks[name].destination]; d != nil && places > 0 {
		d.open -= places
		r.open -= places
		d.probe = ""
	}
}

// maxWhy is how many bytes of an error are logged and published at most: a server may have chosen the text.
const maxWhy = 400

// ended gives back the place of the delivery id to the destination name. It logs if the end of the delivery switched
// the destination off or on. well, sick and why are as in destination.end.
func (r *Runner) ended(id, name string, well, sick bool, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.destinations[name]
	r.open--
	until, why := d.until, redact.Shorten(why, maxWhy)
	off, on := d.end(id, well, sick, why, time.Now())
	switch {
	case off:
		r.logger.Warn("destination of webhooks is switched off: its deliveries wait and lose no attempt", "destination", name,
			"failures", d.failures, "for", d.off, "error", why)
	case on:
		r.logger.Info("destination of webhooks is back", "destination", name)
	case d.until.After(until): // only a test moves until; deliveries that began before the switch do not
		r.logger.Info("destination of webhooks is still not back", "destination", name, "for", d.off, "error", why)
	}
	r.countOff()
	if d.open == 0 && d.failures == 0 {
		delete(r.destinations, name)
	}
}

// off lists the destinations that are switched off.
func (r *Runner) off() (list []Off) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list = []Off{}
	for _, d := range r.destinations {
		if !d.since.IsZero() {
			list = append(list, Off{d.label, d.failures, float64(d.since.Unix()), float64(d.until.Unix()), d.why})
		}
	}
	slices.SortFunc(list, func(a, b Off) int { return cmp.Compare(a.Destination, b.Destination) })
	return list
}

// deliver sends the request of a task, and returns how the task ends. If released is true, the task goes back to its
// queue instead, as if it had not run.
func (r *Runner) deliver(ctx context.Context, d *delivery, h hook) (s listen.Settlement, released bool) {
	s = listen.Settlement{Claim: d.Claim()}
	h, is := r.current(ctx, h)
	if !is {
		r.ended(d.ID, h.destination, false, false, "")
		r.hold(d.queue, time.Now().Add(lookInterval)) // until this host knows the present subscription
		return s, true
	}
	id, published := h.subscription.DeliveryID(d.ID, d.Headers)
	if !published { // written by hand, or for an earlier subscription of this ID
		r.ended(d.ID, h.destination, false, false, "")
		return r.failed(d, s, queue.Failure{Message: fmt.Sprintf("this task is not a delivery of subscription %s, or it belongs to an earlier subscription of this ID, so it is neither signed nor sent: publish to the topic, or run `quern subscription replay`", h.subscription.ID)}, true), false
	}
	var unread error
	if d.Large {
		unread = r.read(ctx, d)
	}
	if queue.IsUnavailable(unread) { // Redis is away
		r.ended(d.ID, h.destination, false, false, "")
		return s, true
	}
	response, err := service.Response{}, unread
	if err == nil {
		response, err = r.send(ctx, d, h, id)
	}
	now := time.Now()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, queue.ErrCancelled):
		r.ended(d.ID, h.destination, false, false, "")
		s.Failure = &queue.Failure{Reason: queue.ReasonCancelled, Message: "cancelled while it ran"}
		return s, false
	case cause != nil && err != nil:
		r.ended(d.ID, h.destination, false, false, "")
		return s, true
	case errors.Is(err, errTooLarge):
		r.ended(d.ID, h.destination, false, false, "")
		return r.failed(d, s, queue.Failure{Message: err.Error()}, true), false
	case errors.Is(err, service.ErrNotFound): // a secret that the operator has not put there yet
		text := service.Told(err)
		r.tellOnce(h.subscription.ID, d.ID, text, err.Error())
		r.ended(d.ID, h.destination, false, false, "")
		s.Failure = &queue.Failure{Message: text}
		delay := periodic.Doubled(secretDelay, longestSecretDelay, d.Reschedules)
		return s.PutOff(d.Retry.WithDefaults(defaultRetry), d.Reschedules, delay).NoLaterThan(d.Expires, d.Clock(now)), false
	case err != nil:
		denied := errors.Is(err, service.ErrDenied) || errors.Is(err, service.ErrInvalid) || errors.Is(err, service.ErrTooBig)
		text := service.Told(err)
		r.tellOnce(h.subscription.ID, d.ID, text, err.Error())
		r.ended(d.ID, h.destination, false, errors.Is(err, service.ErrUnavailable), text)
		return r.failed(d, s, queue.Failure{Message: text}, denied), false
	}
	d.code = response.Status
	v := judge(h.subscription.Webhook, response, now)
	failure := queue.Failure{Message: refusal(response)}
	r.ended(d.ID, h.destination, !v.sick, v.sick, failure.Headline())
	policy := d.Retry.WithDefaults(defaultRetry)
	if !v.done {
		r.tellOnce(h.subscription.ID, d.ID, failure.Headline(), failure.Headline())
	}
	switch {
	case v.done:
		r.tellOnce(h.subscription.ID, d.ID, "", "")
		s.Result = answer(response)
		return s, false
	case v.gone:
		r.switchOff(ctx, h.subscription)
		return r.failed(d, s, failure, true), false
	case v.later > 0:
		r.hold(d.queue, now.Add(v.later))
		if r.isStale(context.WithoutCancel(ctx), h) { // the pause concerns a former URL
			break
		}
		if err := r.client.Queue(d.queue).Hold(context.WithoutCancel(ctx), v.later); err != nil {
			r.logger.Warn("other hosts do not know that a server asked for a pause", "subscription", h.subscription.ID,
				"for", v.later, "error", err)
		}
	}
	if v.later > 0 && d.Reschedules < policy.Reschedules() {
		s.Failure, s.Requeue, s.Delay = &failure, listen.RequeueReschedule, v.later
		return s.NoLaterThan(d.Expires, d.Clock(now)), false
	}
	return r.failed(d, s, failure, v.final), false
}

// current returns the hook with the subscription as it is now: a delivery must not be sent to a former URL, nor without
// a secret that the subscription has got. It returns false if the delivery must wait for the next look: the
// subscription has another destination, is deleted or switched off, or Redis does not answer.
func (r *Runner) current(ctx context.Context, h hook) (hook, bool) {
	if h.subscription.Webhook == nil { // deleted
		return h, false
	}
	now, err := r.client.Subscription(ctx, h.subscription.ID)
	if err != nil || now.Webhook == nil || now.Webhook.Origin() != h.destination ||
		!now.Active && now.Reason == queue.ReasonGone {
		return h, false
	}
	h.subscription = now
	return h, true
}

// isStale reports whether the subscription was replaced or has another URL since its delivery was sent. It also returns
// true if Redis does not answer.
func (r *Runner) isStale(ctx context.Context, h hook) bool {
	now, err := r.client.Subscription(ctx, h.subscription.ID)
	if err != nil {
		return queue.IsUnavailable(err) || ctx.Err() != nil
	}
	return now.Edition() != h.subscription.Edition()
}

// errTooLarge means that a payload is too large to be delivered.
var errTooLarge = errors.New("the payload is too large")

// read waits for memory, and then reads a payload that did not come with the reserve. Before that it gives back the
// memory of the delivery's place.
func (r *Runner) read(ctx context.Context, d *delivery) (err error) {
	budget := r.config.Large
	if most := max(maxPayload, budget.Each()/3); d.Size > most {
		return fmt.Errorf("%w: %s, and this host delivers at most %s: publish a reference to the data instead", errTooLarge,
			units.FormatSize(d.Size), units.FormatSize(most))
	}
	d.share.Give()
	if d.share = budget.Take(ctx, r.client.Tenant(), cost(d.Size)); d.share == nil {
		return context.Cause(ctx)
	}
	d.Parameters, err = r.client.Parameters(ctx, d.ID, d.Size)
	return err
}

// tellOnce logs why a delivery failed, unless the last one of the subscription failed for the same reason. reason is ""
// for a delivery that succeeded. detail is the reason with what only operators may see.
func (r *Runner) tellOnce(subscription, task, reason, detail string) {
	r.mu.Lock()
	known := r.failing[subscription] == reason
	r.failing[subscription] = reason
	r.mu.Unlock()
	if !known && reason != "" {
		level := hclog.Warn
		if r.config.Ended != nil {
			level = hclog.Debug // Config.Ended tells the same
		}
		r.logger.Log(level, "a delivery of a webhook failed", "subscription", subscription, "task", task,
			"error", redact.Shorten(detail, maxWhy))
	}
}

// secret reads a secret. The error for a missing one says where to put it.
func (r *Runner) secret(name string) ([]byte, error) {
	value, err := r.config.Secret(name)
	if !errors.Is(err, service.ErrNotFound) {
		return value, err
	}
	missing := func(dir string) error {
		return fmt.Errorf("%w: the host has no secret %s: %s", service.ErrNotFound, name,
			PutSecret(r.client.Tenant(), dir, name))
	}
	if r.config.Secrets == "" || r.config.TellSecrets {
		return nil, missing(r.config.Secrets)
	}
	return nil, &service.Confidential{Err: missing(r.config.Secrets), Told: missing("").Error()}
}

// PutSecret says how a host gets a secret of a webhook. dir is its folder of secrets, "" if that is not known.
func PutSecret(tenant, dir, name string) string {
	start := ""
	if dir == "" {
		start, dir = "start it with --secrets DIR, and ", "DIR"
	}
	dir += "/" + tenant
	return fmt.Sprintf("%sput the secret into the file %s/%s (to sign: mkdir -p %s && "+
		"echo whsec_$(openssl rand -base64 32) > %s/%s)", start, dir, name, dir, dir, name)
}

// hold stops reserving from a queue until the given time, for example because the webhook's server asked for a pause or
// a reserve failed.
func (r *Runner) hold(name string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until.After(r.held[name]) {
		r.held[name] = until
	}
}

// send makes the HTTP request of a delivery and sends it. By id, the receiver recognizes repeated deliveries.
func (r *Runner) send(ctx context.Context, d *delivery, h hook, id string) (response service.Response, err error) {
	p := &parcel{webhook: h.subscription.Webhook, id: id, headers: d.Headers, payload: d.Parameters}
	request, err := p.request(d.Clock(time.Now()), r.secret)
	if err != nil {
		return response, err
	}
	grant, err := egress.ParseGrant(h.destination, []string{request.Method})
	if err != nil {
		return response, fmt.Errorf("%w: url %q: %w", service.ErrInvalid, request.URL, err)
	}
	if d.Timeout > 0 {
		request.Timeout = min(request.Timeout, d.Timeout)
	}
	services := service.Services{HTTP: r.config.HTTP.For(r.client.Tenant(), []egress.Grant{grant}, r.config.Ceiling)}
	return d.span.Services(services).HTTP.Do(ctx, request)
}

// failed returns the settlement of a failed attempt. If final is true, the task fails for good; otherwise its retry
// policy decides.
func (r *Runner) failed(d *delivery, s listen.Settlement, failure queue.Failure, final bool) listen.Settlement {
	if s.Failure = &failure; final {
		return s
	}
	return s.TryAgain(d.Retry.WithDefaults(defaultRetry), d.Attempts+1).NoLaterThan(d.Expires, d.Clock(time.Now()))
}

// errMoved means that a subscription has another URL by now, or no webhook.
var errMoved = errors.New("it has another URL")

// switchOff switches off a subscription whose server answered 410 Gone.
func (r *Runner) switchOff(ctx context.Context, gone queue.Subscription) {
	_, err := r.client.ChangeSubscription(context.WithoutCancel(ctx), gone.ID, func(s *queue.Subscription) error {
		if s.Webhook == nil || s.Webhook.URL != gone.Webhook.URL {
			return errMoved
		}
		s.Active, s.Reason = false, queue.ReasonGone
		return nil
	})
	switch {
	case err == nil:
		r.logger.Warn("switched off a subscription: its server answered 410 Gone", "subscription", gone.ID)
	case !errors.Is(err, queue.ErrNoSubscription) && !errors.Is(err, errMoved):
		r.logger.Error("a subscription whose server is gone was not switched off", "subscription", gone.ID, "error", err)
	}
}
