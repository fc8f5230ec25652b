package replay

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/service"
)

// The errors by which a replay ends a guest, in addition to Diverged.
var (
	// ErrEnd means that the record has no further answers: the host had ended the run there.
	ErrEnd = errors.New("the record ends here")
	// ErrStopped means that the guest has burned the fuel after which it was to stop.
	ErrStopped = errors.New("stopped at the fuel that was asked for")
)

// Diverged means that a guest asked for something else than what was recorded.
type Diverged struct {
	// Index counts what the guest asked for, from 1.
	Index int
	// Recorded and Asked describe what was recorded and what the guest asked for.
	Recorded, Asked string
}

// Error names both.
func (d *Diverged) Error() string {
	return fmt.Sprintf("call %d differs from the record: recorded %s, asked %s", d.Index, d.Recorded, d.Asked)
}

// Tape records what a run gets from outside, or plays it back. Only the goroutine of the run uses it. A nil Tape
// records nothing.
type Tape struct {
	// End ends the guest with a cause, and does not return. Package runtime sets it before a replay.
	End func(cause error)
	// Sent describes the tasks and publications that the guest sent in a replay.
	Sent []string
	// Secrets are the secrets that a run has read while it is recorded. Package runtime sets them.
	Secrets *redact.Secrets

	playing  bool
	services int
	events   []byte
	clocks   [2]int64 // the last readings: wall and monotonic
	start    []byte   // the events of the start
	ran      bool     // the guest has run

	// while it records:
	limit    int
	over     bool              // limit was exceeded
	revealed map[string][]byte // the secrets that were read, by name
	// in a replay:
	from    decoder
	index   int
	lenient bool     // see Options.Changed
	stopped bool     // see Outcome.Stopped
	saved   []byte   // the checkpoint
	given   *secrets // the values that the user gives
	copied  [2]int64 // the last readings of clocks in events, which a replay writes as well
}

// MaxStart bounds the tape of the start of an instance, in bytes.
const MaxStart = 64 << 10

// expansion is how many times as many bytes as its record a tape may have: most records compress to less than a
// quarter.
const expansion = 4

// TapeOf makes a tape for a record of at most limit bytes.
func TapeOf(limit int64) *Tape { return NewTape(expansion * int(limit)) }

// Memory returns the maximum number of bytes that such a tape and its record take.
func Memory(limit int64) int64 { return (2*expansion + 1) * limit }

// NewTape makes a tape that records at most limit bytes.
func NewTape(limit int) *Tape { return &Tape{limit: limit} }

// Playing reports whether the tape replays a run.
func (t *Tape) Playing() bool { return t != nil && t.playing }

// Events returns what was recorded so far; nil if that exceeded the limit.
func (t *Tape) Events() []byte {
	if t == nil || t.over {
		return nil
	}
	return t.events
}

// Started tells the tape the events of the start of the run's instance. complete is false if they exceeded their limit.
func (t *Tape) Started(events []byte, complete bool) {
	if t != nil {
		t.start, t.ran = events, true
		t.over = t.over || !complete
	}
}

// Checkpoint returns the checkpoint of a replay; nil for none.
func (t *Tape) Checkpoint() []byte { return t.saved }

// Ran reports whether the guest of the tape's call has run.
func (t *Tape) Ran() bool { return t != nil && t.ran }

// Over reports whether the run exceeded the limit of the tape.
func (t *Tape) Over() bool { return t != nil && t.over }

// add records an event that ended with err.
func (t *Tape) add(e event, err error) {
	if t.over {
		return
	}
	if err != nil {
		if e.class = classOf(err); e.class != unknown { // the guest does not learn what a fault of the host is
			e.text = service.Told(err)
		}
	}
	t.events = e.append(t.events)
	if len(t.events) > t.limit {
		t.over, t.events = true, nil
	}
}

// reveal notes the value of a secret that the guest gets.
func (t *Tape) reveal(name string, value []byte) {
	if t.revealed == nil {
		t.revealed = make(map[string][]byte)
	}
	t.revealed[name] = slices.Clone(value)
}

// Clock returns a reading of a clock: 0 is the wall clock, 1 the monotonic one. now is the present reading.
func (t *Tape) Clock(id int, now int64) int64 {
	if t == nil {
		return now
	}
	of := clockWall + kind(id)
	if t.playing {
		e := t.next(of)
		t.clocks[id] += e.number
		t.add(event{kind: of, number: t.clocks[id] - t.copied[id]}, nil)
		t.copied[id] = t.clocks[id]
		return t.clocks[id]
	}
	t.add(event{kind: of, number: now - t.clocks[id]}, nil)
	t.clocks[id] = now
	return now
}

// Random fills p with random bytes.
func (t *Tape) Random(p []byte) {
	if t.Playing() {
		e := t.next(random)
		recorded := e.part(0)
		if len(recorded) != len(p) && !t.lenient {
			t.diverge(fmt.Sprintf("random of %d bytes", len(recorded)), fmt.Sprintf("random of %d bytes", len(p)))
		}
		clear(p[copy(p, recorded):])
		t.add(event{kind: random, parts: [][]byte{p}}, nil)
		return
	}
	_, _ = rand.Read(p) // never fails: without randomness the process ends
	if t != nil && !t.over {
		t.add(event{kind: random, parts: [][]byte{p}}, nil)
	}
}

// Deadline returns the deadline of the task in milliseconds; 0 for none.
func (t *Tape) Deadline(now int64) int64 { return t.number(deadline, now) }

// Ending returns 1 if the guest should end by itself.
func (t *Tape) Ending(now int64) int64 { return t.number(ending, now) }

func (t *Tape) number(of kind, now int64) int64 {
	if t == nil {
		return now
	}
	if t.playing {
		e := t.next(of)
		t.add(e, nil)
		return e.number
	}
	t.add(event{kind: of, number: now}, nil)
	return now
}

// Paced reports whether the guest has to wait because it logs too fast. now says so for a run that is not replayed.
func (t *Tape) Paced(now bool) bool {
	switch {
	case t == nil:
	case t.playing:
		ahead := t.from
		if e := ahead.event(); ahead.err != nil || e.kind != pace {
			return false
		}
		t.add(t.next(pace), nil)
		return true
	case now:
		t.add(event{kind: pace}, nil)
	}
	return now
}

// next returns the recorded event of what the guest asks for. If the record has another one, or none, next ends the
// guest. A lenient replay finds clocks, random numbers and the like for themselves, and makes them up after the last.
func (t *Tape) next(of kind, asked ...string) event {
	t.index++
	if t.lenient && of < firstService {
		return t.ahead(of)
	}
	for {
		now := event{kind: of, asked: asked}
		if len(t.from.rest) == 0 && t.from.err == nil {
			if t.stopped && !t.lenient {
				t.End(ErrEnd)
			}
			t.diverge("nothing more", now.String())
			return event{}
		}
		e := t.from.event()
		plain := e.kind &^ withSecrets
		switch {
		case t.from.err != nil:
			t.End(t.from.err)
			return event{}
		case t.lenient && plain < firstService:
			t.count(&e)
			continue
		case plain != of || !t.matches(e.asked, asked):
			t.diverge(e.String(), now.String())
			return event{}
		}
		if of >= firstService {
			t.add(e, nil)
		}
		if e.kind != plain {
			t.given.showEvent(&e)
		}
		return e
	}
}

// ahead takes the next event of a kind that comes before the next call of a service, out of order. If there is none, it
// makes one up: a clock stands still, and random bytes are zero.
func (t *Tape) ahead(of kind) event {
	ahead := t.from
	for len(ahead.rest) > 0 {
		begin := len(t.from.rest) - len(ahead.rest)
		e := ahead.event()
		if ahead.err != nil || e.kind >= firstService {
			break
		}
		if e.kind == of {
			end := len(t.from.rest) - len(ahead.rest)
			t.from.rest = slices.Concat(t.from.rest[:begin], t.from.rest[end:])
			return e
		}
	}
	return event{kind: of}
}

// count advances the clocks by an event that a lenient replay skips.
func (t *Tape) count(e *event) {
	if e.kind == clockWall || e.kind == clockMonotonic {
		t.clocks[e.kind-clockWall] += e.number
	}
}

func (t *Tape) diverge(recorded, asked string) { t.End(&Diverged{t.index, recorded, asked}) }

// matches compares the recorded arguments of a call with those of the guest. The recorded ones may have the names of
// secrets in place of their values.
func (t *Tape) matches(recorded, asked []string) bool {
	return slices.EqualFunc(recorded, asked, func(a, b string) bool { return a == b || a == t.given.name(b) })
}
