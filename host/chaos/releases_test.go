package chaos

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/plugins/signature"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/release"
)

//go:embed testdata/release.c
var releaseSource string

// defect says how a release is bad. The first ones are those of testdata/release.c.
type defect int

const (
	sound defect = iota
	traps
	fails
	slow
	greedy
	deadly
	unsigned
	refused
	lies
)

func (m defect) String() string {
	return []string{
		"sound", "traps", "fails in a fifth of its tasks", "takes twice as long", "needs too much memory", "ends its hosts",
		"is not signed by the right key", "has a manifest that hosts refuse", "has a piece with other bytes",
	}[m]
}

const (
	// releaseManifest lets a task outlast a bad release: it is tried until its side is the sound one.
	releaseManifest = `name: release
limits: {memory: 2MiB, input: 4KiB, output: 4KiB}
retry: {max_attempts: 1000, base: 100ms, min: 100ms, max: 500ms}
`
	// releaseShare is the share of a new release, in percent. It serves after releaseTasks of its tasks have ended.
	releaseShare, releaseTasks = 20, 60
	// mostFalse is how many of 40 sound releases may be halted: at most one of 100 is expected.
	mostFalse = 3
	// mostTouched is how many tasks may run on a bad release before it is halted.
	mostTouched = 1000
)

// rollouts are the releases of a plugin, and the tasks that run on them.
type rollouts struct {
	*fleet
	store   *release.Store
	key     signature.Private
	load    int          // tasks a second
	last    atomic.Int64 // the number of the last task that was enqueued
	ending  atomic.Int64 // the release whose tasks end their hosts; 0 for none
	deadly  atomic.Value // the digest of its module
	oneOf   int          // each oneOf-th task of that release ends its host
	killed  atomic.Int64 // how many hosts it has ended
	defects map[int]defect
}

// TestReleases has five hosts, each with a plugin directory and a cache of its own, get one release of a plugin after the
// other while tasks run and hosts and Redis break. Some releases are bad: each is halted by itself, no task is lost, and
// each ends on one version.
func TestReleases(t *testing.T) {
	beside(t)
	seed := newSeed(t)
	s := settings{hosts: 5, concurrency: 8, lease: 2 * time.Second, grace: time.Second, patience: 3 * time.Minute, apart: true}
	sequence, length := []defect{sound, fails, sound, deadly}, 10*time.Second
	load := 60
	if full {
		s.patience, length = 25*time.Minute, 5*time.Minute
		load = 100
		random := newRandom(seed, 200)
		sequence = []defect{traps, traps, fails, fails, slow, greedy, deadly, unsigned, refused, lies}
		for len(sequence) < 50 {
			sequence = append(sequence, sound)
		}
		random.Shuffle(len(sequence), func(i, j int) { sequence[i], sequence[j] = sequence[j], sequence[i] })
	}
	r := newRollouts(t, s, load)
	plan := newPlan(seed, s, []string{hostVictims, redisVictim}, length, 5*time.Second, 40*time.Second)
	t.Logf("QUERN_CHAOS_SEED=%d, %d faults", seed, len(plan))
	ctx, stop := context.WithCancel(r.ctx)
	enqueued, suffered := make(chan error, 1), make(chan struct{})
	go func() { enqueued <- r.feed(ctx) }()
	go func() { defer close(suffered); r.suffer(plan, nil) }()
	halted := 0
	for _, m := range sequence {
		if r.try(m) {
			halted++
		}
	}
	<-suffered
	stop()
	if err := <-enqueued; err != nil {
		t.Error(err)
	}
	r.audit(int(r.last.Load()))
	if halted > mostFalse {
		t.Errorf("%d sound releases were halted", halted)
	}
	t.Logf("%d releases, %d tasks; %d sound releases were halted", len(sequence), r.last.Load(), halted)
	r.leave()
}

// newRollouts starts a fleet that serves a first release.
func newRollouts(t *testing.T, s settings, load int) *rollouts {
	t.Helper()
	private, public := newKey(t)
	grants := filepath.Join(t.TempDir(), "grants.yaml")
	if err := os.WriteFile(grants, []byte(tenant+":\n  signers:\n    builder: |\n"+public), 0o600); err != nil {
		t.Fatal(err)
	}
	s.arguments = []string{"--grants", grants, "--require-signed"}
	r := &rollouts{load: load, oneOf: 10, defects: make(map[int]defect)}
	s.heard, s.bad = r.heard, func(digest string) bool { return digest == r.deadly.Load() }
	r.fleet = newFleet(t, s)
	r.store, r.key = release.NewStore(r.client), private
	r.push(sound, nil)
	for _, h := range r.hosts {
		r.eventually(h.name+" serves the first release", func() bool { return h.process().serves("release") })
	}
	return r
}

// TestDeadlyCanary has five hosts under load get a canary whose tasks end their host at once. Two hosts die, then
// it is halted, and all tasks end on the release before.
func TestDeadlyCanary(t *testing.T) {
	beside(t)
	r := newRollouts(t, settings{
		hosts: 5, concurrency: 8, lease: 2 * time.Second, grace: time.Second, patience: 3 * time.Minute, apart: true,
	}, 60)
	r.oneOf = 1
	ctx, stop := context.WithCancel(r.ctx)
	enqueued := make(chan error, 1)
	go func() { enqueued <- r.feed(ctx) }()
	r.try(deadly)
	stop()
	if err := <-enqueued; err != nil {
		t.Error(err)
	}
	if n := r.killed.Load(); n != 2 {
		t.Errorf("%d hosts died, want 2", n)
	}
	r.audit(int(r.last.Load()))
	r.leave()
}

// newKey makes a key for signatures: the private one, and the public one as grants have it.
func newKey(t *testing.T) (private signature.Private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own, wrong := x509.MarshalPKCS8PrivateKey(key)
	theirs, bad := x509.MarshalPKIXPublicKey(&key.PublicKey)
	private, unread := signature.ParsePrivate(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: own}), "")
	if err := errors.Join(wrong, bad, unread); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: theirs}))) {
		public += "      " + line
	}
	return private, public
}

// liar stores other bytes than it was given.
type liar struct {
	*release.Store
	rdb *redis.Client
}

func (l liar) PutPiece(ctx context.Context, digest string, data []byte) error {
	if err := l.Store.PutPiece(ctx, digest, data); err != nil {
		return err
	}
	return l.rdb.Set(ctx, key("piece_"+digest), "other bytes", 0).Err()
}

// push pushes the next release, again and again while Redis is away. Only the first release has no share.
func (r *rollouts) push(m defect, share *release.Share) release.Release {
	r.t.Helper()
	version := len(r.defects) + 1
	compiled := m
	if m > deadly {
		compiled = sound
	}
	module := runtimetest.BuildC(r.t, releaseSource, fmt.Sprintf("-DVERSION=%d", version), fmt.Sprintf("-DMANNER=%d", compiled))
	manifest := releaseManifest
	if m == refused {
		manifest += "limit: {}\n"
	}
	files := []release.Content{{Name: "release.wasm", Data: module}, {Name: "release.yaml", Data: []byte(manifest)}}
	one, err := release.New("release", files)
	if err != nil {
		r.t.Fatal(err)
	}
	signer := r.key
	if m == unsigned {
		signer, _ = newKey(r.t.(*testing.T))
	}
	signed, err := signer.Sign(one.Statement())
	if err != nil {
		r.t.Fatal(err)
	}
	one.Signatures, one.Queues = []string{signed}, []string{"release"}
	if m == deadly {
		r.deadly.Store("sha256:" + one.ModuleDigest())
	}
	target := release.Target(r.store)
	if m == lies {
		target = liar{r.store, r.rdb}
	}
	var pushed release.Release
	r.eventually("the release is pushed", func() bool {
		pushed, err = release.Push(r.ctx, target, one, files, share)
		if err != nil && !queue.IsUnavailable(err) {
			r.t.Fatal(err)
		}
		return err == nil
	})
	if pushed.Number != version {
		r.t.Fatalf("release %d has the number %d", version, pushed.Number)
	}
	r.defects[version] = m
	return pushed
}

// try pushes a release as a canary, and waits for what becomes of it. It reports whether a sound one was halted.
func (r *rollouts) try(m defect) (halted bool) {
	r.t.Helper()
	if m == deadly {
		r.ending.Store(int64(len(r.defects) + 1))
	}
	pushed := r.push(m, &release.Share{Steps: []release.Step{{Percent: releaseShare, Tasks: releaseTasks}}})
	began := time.Now()
	var now release.Release
	r.eventually(fmt.Sprintf("release %d, which %s, is served or halted", pushed.Number, m), func() bool {
		var err error
		now, err = r.store.Release(r.ctx, "release", pushed.Number)
		return err == nil && now.State() != release.StateCanary
	})
	r.ending.Store(0)
	why := ""
	if now.Stage != nil {
		why = now.Stage.Reason
	}
	took := time.Since(began).Round(time.Second)
	switch isHalted := now.State() == release.StateHalted; {
	case m != sound && !isHalted:
		r.t.Errorf("release %d %s, and is %s after %s", now.Number, m, now.State(), took)
	case m != sound:
		r.t.Logf("release %d %s: halted after %s: %s", now.Number, m, took, why)
	case isHalted:
		r.t.Logf("release %d is sound, and was halted after %s: %s", now.Number, took, why)
		return true
	}
	return false
}

// feed enqueues tasks until ctx ends.
func (r *rollouts) feed(ctx context.Context) error {
	ticker := time.NewTicker(time.Second / time.Duration(r.load))
	defer ticker.Stop()
	for number := int64(1); ; number++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		spec := queue.Spec{Options: queue.Options{ID: releaseTask(number)}, Parameters: []byte(strconv.FormatInt(number, 10))}
		for {
			_, err := r.client.Queue("release").EnqueueMany(ctx, []queue.Spec{spec})
			if err == nil {
				break
			}
			if ctx.Err() != nil { // the task may be enqueued; nothing counts it
				return nil
			}
			if !queue.IsUnavailable(err) {
				return err
			}
		}
		r.last.Store(number)
	}
}

func releaseTask(number int64) string { return fmt.Sprintf("release-%06d", number) }

// heard ends a host that begins one of some tasks of the release that is to end its hosts, and starts another one as a
// supervisor would.
func (r *rollouts) heard(p *process, line logLine) {
	number, _ := strconv.Atoi(strings.TrimPrefix(line.TaskID, "release-"))
	if line.Message != "task started" || line.Release == 0 || int64(line.Release) != r.ending.Load() || number%r.oneOf != 0 {
		return
	}
	if !p.dying.CompareAndSwap(false, true) {
		return
	}
	r.killed.Add(1)
	go func() {
		p.host.fate.Lock()
		defer p.host.fate.Unlock()
		p.signal(syscall.SIGKILL)
		<-p.ended
		if p != p.host.process() || !sleep(r.ctx, r.lease) { // somebody was faster
			return
		}
		if err := p.host.start(); err != nil {
			r.t.Error(err)
		}
	}()
}

// audit reads what became of all tasks: each is complete, and its result is the version of its last run.
func (r *rollouts) audit(tasks int) {
	r.t.Helper()
	q := manage.New(r.client).Queue("release")
	r.eventually("all tasks are settled", func() bool {
		open := int64(0)
		for _, status := range []queue.Status{queue.Pending, queue.Scheduled, queue.Reserved, queue.Started} {
			n, err := q.Count(r.ctx, status)
			if err != nil {
				return false
			}
			open += n
		}
		return open == 0
	})
	touched := make(map[int]int)
	lost, mixed := 0, 0
	for number := range int64(tasks) {
		id := releaseTask(number + 1)
		task, err := r.client.Task(r.ctx, id)
		if err != nil || task.Status != queue.Complete {
			lost++
			r.t.Logf("task %s: %+v, %v", id, task, err)
			continue
		}
		runs := r.journal.of(id)
		on := make(map[int]bool)
		for _, e := range runs {
			on[e.release] = true
		}
		for release := range on {
			touched[release]++
		}
		last, err := strconv.Atoi(string(task.Result))
		ended := slices.ContainsFunc(runs, func(e execution) bool {
			unheard := e.outcome == "" || e.outcome == "lost" // its host or its connection died while it settled the task
			return e.release == last && (e.outcome == "complete" || unheard)
		})
		if err != nil || !ended {
			mixed++
			r.t.Logf("task %s has the result %q; its runs: %v", id, task.Result, runs)
		}
	}
	if lost+mixed > 0 {
		r.t.Errorf("of %d tasks, %d are not complete, and %d have the result of another version than that of their runs", tasks, lost, mixed)
	}
	bad := 0
	for number, m := range r.defects {
		if m == sound {
			continue
		}
		bad += touched[number]
		if touched[number] > mostTouched {
			r.t.Errorf("release %d %s, and %d tasks ran on it", number, m, touched[number])
		}
	}
	day := 24 * 60 * 60 * r.load
	r.t.Logf("%d of %d tasks ran on bad releases: %.3f %% of those of a day", bad, tasks, 100*float64(bad)/float64(day))
}
