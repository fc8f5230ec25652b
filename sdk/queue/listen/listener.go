package listen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// The operation names under which a Listener and its user report calls to Reports.
const (
	OpJoin      = "join" // reported by the user
	OpRenew     = "renew"
	opRegister  = "register"
	opSubscribe = "subscribe"
	opControl   = "control"
)

const (
	// markPause is the minimum time between two checks for marks, no matter how many messages arrive.
	markPause = 20 * time.Millisecond
	// recheckLeases is the number of lease lengths between two checks that Redis still has the registrations.
	recheckLeases = 6
	// registerQueues is the maximum number of queues that are registered for in one round trip.
	registerQueues = 1000
)

// User is the program that a Listener works for. Its methods must not block.
type User interface {
	// Queues returns the queues to listen to, as keys with the value true. The listener modifies the returned map.
	Queues() map[string]bool
	// Registered is called when the listener has registered for a queue. again is true if the listener had registered for
	// the queue before, but Redis had lost the registration.
	Registered(queue string, again bool)
	// Unregistered is called when the listener does not listen to the queue any more.
	Unregistered(queue string)
	// Wake is called when a queue may have tasks.
	Wake(queue string)
	// Drain is called, perhaps more than once, when an operator drains the listener.
	Drain()
	// About returns the fields, with their texts, that the listener publishes with each renewal of its lease.
	About() map[string]string
}

// Listener runs one listener from joining to leaving. After Join it renews the lease, registers for the queues of its
// user, wakes the user when a queue may have tasks, and stops the tasks that operators cancel. The user runs and
// settles the tasks, and decides when to leave.
type Listener struct {
	*Node
	// Tasks are the tasks that the listener holds.
	Tasks Tasks

	user    User
	reports periodic.Reports
	watch   *Watch // the Watch of the current Run
	// Renewed, Control and Ended are optional functions, to be set before Run. They must not block. Renewed is called
	// after each attempt to renew the lease; begun is when the attempt began. Control is called when a message arrives on
	// the control channel, and Ended when tasks that others wait for may have ended. Both are also called when their
	// channel is subscribed to again, because earlier messages are lost.
	Renewed func(begun, now time.Time, err error)
	Control func()
	Ended   func()

	registrar registrar
	marks     marks
	// news holds a token when About is to be published at once. missing holds a token when a call found that Redis has
	// forgotten the listener. Neither channel is ever closed.
	news, missing chan struct{}
	asked         chan chan struct{} // from each Published: a channel to close once About is in Redis

	leaving sync.Mutex // held by Leave and by the registrar; guards the fields below
	left    bool       // Leave has succeeded: the listener registers for no more queues
	ended   bool       // the listener has ended its lease itself, so a lost lease is no error
}

// NewListener makes a listener with a new ID. Join makes it known in Redis.
func NewListener(c *queue.Client, user User, reports periodic.Reports) *Listener {
	l := &Listener{
		Node: New(c), user: user, reports: reports,
		news: make(chan struct{}, 1), missing: make(chan struct{}, 1), asked: make(chan chan struct{}),
	}
	l.registrar = registrar{
		Duty: periodic.Duty{Reports: reports}, listener: l, listens: make(map[string]bool),
		refused: make(map[string]bool),
	}
	l.marks = marks{Duty: periodic.Duty{Reports: reports, Op: opControl, First: l.Lease() / 3}, listener: l}
	return l
}

// Follow makes the listener register for the queues that User.Queues returns now, and leave all other queues.
func (l *Listener) Follow() {
	l.registrar.followed.Store(false)
	l.registrar.Ask()
}

// CheckMarks makes the listener check at once for the marks with which operators cancel tasks and drain listeners,
// instead of at the next regular check.
func (l *Listener) CheckMarks() { l.marks.Ask() }

// Lost makes Run return ErrLeaseLost. The user calls it when a call found that Redis has forgotten the listener.
func (l *Listener) Lost() { periodic.Notify(l.missing) }

// Publish makes the listener publish About at once, instead of at the next regular renewal.
func (l *Listener) Publish() { periodic.Notify(l.news) }

// Published makes the listener publish About, and returns nil once the fields are in Redis. If ctx ends first,
// Published returns the error of ctx.
func (l *Listener) Published(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case l.asked <- done:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}

// Run runs the listener, which must have joined, until ctx ends, and then returns nil. It returns ErrLeaseLost when the
// lease is lost. Then other listeners get the tasks of this one, and the user must make a new Listener and let it join.
// After Run has returned nil, it can be called again.
func (l *Listener) Run(ctx context.Context) error {
	l.watch = NewWatch(l.client)
	defer l.watch.Close()
	ctx, end := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { l.follow(ctx) })
	defer following.Wait()
	defer periodic.Start(ctx, &l.registrar, &l.marks)()
	defer end()
	return l.renew(ctx)
}

// follow calls the user and the optional functions at messages on the channels of Pub/Sub.
func (l *Listener) follow(ctx context.Context) {
	subscribed := func(err error) {
		if err != nil && ctx.Err() == nil {
			l.reports.FailedQuietly(opSubscribe, err) // go-redis subscribes again by itself
		}
	}
	subscribed(l.watch.Control(ctx, func() {
		l.CheckMarks()
		if l.Control != nil {
			l.Control()
		}
	}))
	if l.Ended != nil {
		subscribed(l.watch.Ended(ctx, l.Ended))
	}
	if queues := slices.Collect(maps.Keys(l.Listening())); len(queues) > 0 { // registered by an earlier Run
		subscribed(l.watch.Add(ctx, queues...))
	}
	l.watch.Run(ctx, l.user.Wake)
}

// Leave is Node.Leave. Run can go on during Leave and afterwards.
func (l *Listener) Leave(ctx context.Context) error {
	l.leaving.Lock()
	defer l.leaving.Unlock()
	condemned, err := l.leave(ctx)
	l.left, l.ended = l.left || err == nil, l.ended || condemned
	return err
}

// hasEnded reports whether the listener has ended its lease itself.
func (l *Listener) hasEnded() bool {
	l.leaving.Lock()
	defer l.leaving.Unlock()
	return l.ended
}

// renew renews the lease every third of its length, and sooner after a failure. After an outage of Redis, other
// listeners that renew earlier could otherwise take this one for dead. While Redis is away, renewals fail, but no other
// listener can end the lease either.
func (l *Listener) renew(ctx context.Context) error {
	var pause periodic.Pause
	var waiting []chan struct{} // from callers of Published
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.missing:
			return ErrLeaseLost
		case <-l.news:
		case done := <-l.asked:
			waiting = append(waiting, done)
		case <-timer.C:
		}
		begun := time.Now()
		drain, err := l.Renew(ctx, l.user.About())
		if l.Renewed != nil {
			l.Renewed(begun, time.Now(), err)
		}
		if drain {
			l.user.Drain()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrLeaseLost) && l.hasEnded():
			<-ctx.Done()
			return nil
		case errors.Is(err, ErrLeaseLost):
			return err
		case err != nil:
			l.reports.Failed(OpRenew, "", err)
			timer.Reset(min(pause.Failed(time.Now()), l.Lease()/6))
		default:
			l.reports.Succeeded(OpRenew, "")
			pause.Succeeded()
			for _, done := range waiting {
				close(done)
			}
			waiting = nil
			timer.Reset(time.Until(begun.Add(l.Lease() / 3)))
		}
	}
}

// marks checks for the marks with which operators cancel tasks and drain a listener. It checks whenever the control
// channel announces marks, and every third of a lease in case a message was lost.
type marks struct {
	periodic.Duty
	listener *Listener
}

// RunOnce implements periodic.Worker.
func (m *marks) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	l := m.listener
	marked, drain, err := l.Marks(ctx, slices.Collect(maps.Keys(l.Tasks.All())))
	if drain {
		l.user.Drain()
	}
	l.Tasks.Stop(marked, queue.ErrCancelled)
	return markPause, l.Lease() / 3, err
}

// registrar registers a listener for the queues of its user, and makes it leave other queues. It repeats failed calls.
type registrar struct {
	periodic.Duty
	listener *Listener
	followed atomic.Bool // whether the last update succeeded and Follow was not called since
	recheck  time.Time   // when to check the registrations again; zero before the first run

	mu sync.Mutex // guards the fields below
	// listens maps a queue to true while the listener listens to it, and to false after the listener has left it.
	listens map[string]bool
	refused map[string]bool // queues for which Redis refused the last call
}

// RunOnce implements periodic.Worker.
func (r *registrar) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	l := r.listener
	l.leaving.Lock()
	defer l.leaving.Unlock()
	if l.left {
		return 0, periodic.UntilAsked, nil
	}
	interval := recheckLeases * l.Lease()
	if r.recheck.IsZero() {
		r.recheck = time.Now().Add(interval)
	}
	if !r.followed.Swap(true) {
		if err := r.update(ctx); err != nil {
			r.followed.Store(false)
			return 0, 0, err
		}
		l.reports.Succeeded(opRegister, "") // ends failures, also of changes that the user no longer wants
		l.Publish()
	}
	if time.Now().After(r.recheck) {
		r.registerAgain(ctx)
		r.recheck = time.Now().Add(interval)
	}
	return 0, time.Until(r.recheck), nil
}

// update registers for the queues that the user wants, and leaves all others. If Redis refuses one queue, update goes
// on with the next.
func (r *registrar) update(ctx context.Context) error {
	l := r.listener
	var errs []error
	record := func(name string, err error) (fatal error) {
		switch {
		case err == nil:
			l.reports.Succeeded(opRegister, name)
			r.mu.Lock()
			delete(r.refused, name)
			r.mu.Unlock()
			return nil
		case ctx.Err() != nil:
			return err
		}
		l.reports.Failed(opRegister, name, err)
		if queue.IsUnavailable(err) {
			return err
		}
		r.mu.Lock()
		r.refused[name] = true
		r.mu.Unlock()
		errs = append(errs, err)
		return nil
	}
	var joining []string
	for name, listen := range r.changes() {
		if listen {
			joining = append(joining, name)
		} else if err := record(name, r.leave(ctx, name)); err != nil {
			return err
		}
	}
	for names := range slices.Chunk(joining, registerQueues) {
		for i, err := range r.register(ctx, names) {
			if err := record(names[i], err); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// register registers for queues. It returns one error, or nil, for each queue.
func (r *registrar) register(ctx context.Context, names []string) []error {
	l := r.listener
	errs := l.RegisterAll(ctx, names)
	var registered []string
	for i, name := range names {
		if errs[i] == nil {
			registered = append(registered, name)
			r.set(name, true)
			l.user.Registered(name, false)
		}
	}
	if len(registered) == 0 {
		return errs
	}
	if err := l.watch.Add(ctx, registered...); err != nil && ctx.Err() == nil {
		// The user polls for unannounced tasks, and go-redis subscribes again by itself.
		l.reports.FailedQuietly(opSubscribe, err)
	}
	return errs
}

// leave stops listening to a queue. If Redis is away, the listener stays registered. Meanwhile the user reserves
// nothing from the queue, and it may want the queue again before Redis is back.
func (r *registrar) leave(ctx context.Context, name string) error {
	l := r.listener
	if err := l.Unregister(ctx, name); err != nil {
		return err
	}
	r.set(name, false)
	l.user.Unregistered(name)
	_ = l.watch.Remove(ctx, name) // if it fails, Watch's messages for the queue are ignored
	return nil
}

// registerAgain registers again for the queues for which Redis has lost the registration.
func (r *registrar) registerAgain(ctx context.Context) {
	l := r.listener
	unlisted, err := l.Forgotten(ctx, slices.Collect(maps.Keys(l.Listening())))
	for _, name := range unlisted {
		if err = l.Register(ctx, name); err != nil {
			break
		}
		l.user.Registered(name, true)
	}
	if err != nil && ctx.Err() == nil {
		l.reports.FailedQuietly(opRegister, err) // the next recheck tries again
	}
}

// changes maps the queues to register for to true, and the queues to leave to false.
func (r *registrar) changes() map[string]bool {
	changes := r.listener.user.Queues()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, listens := range r.listens {
		switch {
		case listens && changes[name]:
			delete(changes, name)
		case listens:
			changes[name] = false
		}
	}
	return changes
}

func (r *registrar) set(queue string, listens bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listens[queue] = listens
}

// ListensToAll reports whether the listener listens to all queues of its user, except for those that Redis refuses.
func (l *Listener) ListensToAll() bool {
	changes := l.registrar.changes()
	l.registrar.mu.Lock()
	defer l.registrar.mu.Unlock()
	for name, listen := range changes {
		if listen && !l.registrar.refused[name] {
			return false
		}
	}
	return true
}

// Listening lists the queues that the listener listens to now.
func (l *Listener) Listening() map[string]bool {
	l.registrar.mu.Lock()
	defer l.registrar.mu.Unlock()
	queues := maps.Clone(l.registrar.listens)
	maps.DeleteFunc(queues, func(_ string, listens bool) bool { return !listens })
	return queues
}

// Unknown lists, by queue, the IDs in the listener's reserved lists that are not among its Tasks. The reply to their
// reserve was lost, or Redis has failed over to an older state. If a reserve is on its way, its tasks can be among
// them.
func (l *Listener) Unknown(ctx context.Context) (map[string][]string, error) {
	before := l.Tasks.All()
	held, err := l.HeldAll(ctx, l.everRegistered())
	for name, ids := range held {
		if held[name] = l.Tasks.Unknown(ids, before); len(held[name]) == 0 {
			delete(held, name)
		}
	}
	return held, err
}

// GiveBack puts the tasks that Unknown listed back at the front of their queue, and returns how many of them the
// listener really held. ids must be newest first. Call GiveBack only while no reserve of the queue is on its way.
func (l *Listener) GiveBack(ctx context.Context, name string, ids []string) (released int, err error) {
	reply := l.Adopt(ctx, ReserveRequest{Queue: name}, ids)
	claims := make([]Claim, len(reply.Tasks))
	for i, reservation := range reply.Tasks {
		claims[i] = reservation.Claim()
	}
	errs, err := l.Release(ctx, name, claims)
	return len(errs), cmp.Or(reply.Err, err)
}

// GiveBackUnknown puts all tasks that Unknown lists back at the front of their queues. While Redis is away it tries
// again, until ctx ends. The caller must make sure that no task runs any more.
func (l *Listener) GiveBackUnknown(ctx context.Context) error {
	var unknown map[string][]string
	err := Persist(ctx, func(context.Context) (err error) { unknown, err = l.Unknown(ctx); return err })
	errs := []error{store.Wrap("look for unknown tasks", err)}
	for name, ids := range unknown {
		err := Persist(ctx, func(context.Context) error { _, err := l.GiveBack(ctx, name, ids); return err })
		errs = append(errs, store.Wrap(fmt.Sprintf("give back unknown tasks of %q", name), err))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}
