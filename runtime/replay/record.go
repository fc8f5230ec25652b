package replay

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/quern-project/quern/runtime/redact"
)

// Header describes a recorded run: what the guest was told of its task, how it was bounded, and how it ended.
type Header struct {
	Task   string `json:"task"`
	Queue  string `json:"queue"`
	Tenant string `json:"tenant"`
	Run    int64  `json:"run,omitempty"`

	Plugin  string `json:"plugin"`
	Version string `json:"version,omitempty"`
	// Release is the number of the release that ran the task; 0 for none.
	Release int `json:"release,omitempty"`
	// Module is the SHA-256 of the module, and Manifest that of the manifest, both as "sha256:" and hex digits. Manifest
	// is "" if there is none.
	Module   string `json:"module"`
	Manifest string `json:"manifest,omitempty"`

	Attempt       int               `json:"attempt,omitempty"`
	MaxAttempts   int               `json:"max_attempts,omitempty"`
	Reschedules   int               `json:"reschedules,omitempty"`
	PreviousError string            `json:"previous_error,omitempty"`
	Parent        string            `json:"parent,omitempty"`
	Key           string            `json:"key,omitempty"`
	Traceparent   string            `json:"traceparent,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`

	Env    map[string]string `json:"env,omitempty"`
	Config map[string]string `json:"config,omitempty"`
	Entry  string            `json:"entry,omitempty"`
	Limits Limits            `json:"limits"`

	// Secrets are the secrets that the run has read, by name, each with 8 bits of a hash. If there are any, the checkpoint
	// has marks in place of their values.
	Secrets map[string]byte `json:"secrets,omitempty"`
	// Services are the services that the run had, as bits.
	Services int     `json:"services"`
	Outcome  Outcome `json:"outcome"`
}

// Limits are those of runtime.Limits on which a run's course depends.
type Limits struct {
	Memory   int64             `json:"memory"`
	Input    int64             `json:"input"`
	Output   int64             `json:"output"`
	Log      int64             `json:"log"`
	Timeout  time.Duration     `json:"timeout,omitempty"`
	CPU      time.Duration     `json:"cpu,omitempty"`
	Remedies map[string]string `json:"remedies,omitempty"`
}

// Outcome is how a recorded run ended.
type Outcome struct {
	Kind    string `json:"kind"`
	Code    int    `json:"code,omitempty"`
	Trap    string `json:"trap,omitempty"`
	Limit   string `json:"limit,omitempty"`
	Message string `json:"message,omitempty"`
	Fuel    int64  `json:"fuel"`
	// Output is the SHA-256 of the result in hex; "" if there is none.
	Output string `json:"output,omitempty"`
	// Stopped is true if the host ended the run by the clock, or because it was cancelled. A replay ends it at the same
	// fuel.
	Stopped bool `json:"stopped,omitempty"`
}

// Record is a recorded run.
type Record struct {
	Header
	// Checkpoint is what an earlier run had saved; nil for none. Warm is the input of the warm call; nil for none.
	Checkpoint, Warm []byte
	// Input is the input of the task; nil if the record is without it, as in Redis, which has it beside the record.
	Input []byte

	start, events []byte
}

// ErrTooLarge means that a record has more bytes than allowed.
var ErrTooLarge = errors.New("the record is too large")

const (
	// magic begins each record, and names the version of the format.
	magic = "quern record 1\n"
	// maxDecoded bounds the bytes of a record when it is decompressed.
	maxDecoded = 1 << 30
)

// compressors have *flate.Writer: making one takes longer than compressing most records.
var compressors sync.Pool

// Finish completes a record with what the tape has recorded. The tape is of no use after that.
func (t *Tape) Finish(r *Record) error {
	if t.over {
		return ErrTooLarge
	}
	r.Services, r.start, r.events = t.services, t.start, t.events
	if len(t.revealed) == 0 || t.playing { // a replay copies events in which they are hidden
		return nil
	}
	read := newSecrets(t.revealed, t.Secrets)
	var hidden []byte
	for d := (decoder{rest: t.events}); len(d.rest) > 0; {
		e := d.event()
		if d.err != nil {
			return d.err
		}
		read.room = t.limit - len(hidden)
		read.hideEvent(&e)
		if hidden = e.append(hidden); read.room < 0 || len(hidden) > t.limit {
			return ErrTooLarge
		}
	}
	read.room = len(r.Checkpoint) + t.limit
	r.events, r.Checkpoint, r.Secrets = hidden, read.hide(r.Checkpoint), map[string]byte{}
	if read.room < 0 {
		return ErrTooLarge
	}
	for name, value := range t.revealed {
		r.Secrets[name] = r.check(name, value)
	}
	return nil
}

// Encode writes the record in at most limit bytes. If there are recipients, it is encrypted to them.
func (r *Record) Encode(limit int, recipients ...Recipient) ([]byte, error) {
	header, err := json.Marshal(r.Header)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	var out bytes.Buffer
	body, err := encrypt(&out, recipients)
	if err != nil {
		return nil, err
	}
	w, _ := compressors.Get().(*flate.Writer)
	if w == nil {
		w, _ = flate.NewWriter(body, flate.BestSpeed) // the level is valid
	} else {
		w.Reset(body)
	}
	defer compressors.Put(w)
	for _, section := range [...][]byte{header, r.Checkpoint, r.Warm, r.start, r.events, r.Input} {
		length := uint64(0)
		if section != nil {
			length = uint64(len(section)) + 1
		}
		_, _ = w.Write(binary.AppendUvarint(nil, length)) // a buffer does not fail
		_, _ = w.Write(section)
		if out.Len() > limit {
			return nil, ErrTooLarge
		}
	}
	if err := errors.Join(w.Close(), body.Close()); err != nil {
		return nil, fmt.Errorf("compress record: %w", err)
	}
	if out.Len() > limit {
		return nil, ErrTooLarge
	}
	return out.Bytes(), nil
}

// Decode reads a record. One that is encrypted needs an identity of one of its recipients, else the error is an
// *EncryptedError.
func Decode(data []byte, identities ...Identity) (*Record, error) {
	body, err := decrypt(data, identities)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(body), maxDecoded))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	r, d := new(Record), decoder{rest: text}
	header := d.bytes()
	for _, section := range []*[]byte{&r.Checkpoint, &r.Warm, &r.start, &r.events, &r.Input} {
		*section = d.bytes()
	}
	if d.err != nil || json.Unmarshal(header, &r.Header) != nil {
		return nil, ErrDamaged
	}
	return r, nil
}

// Options say how a record is replayed.
type Options struct {
	// Changed is true if the module is not the recorded one. It can read clocks and random numbers more or less often
	// than the recorded run; only calls of services must come in the recorded order.
	Changed bool
	// Secrets are the values of the secrets that the run has read, by name. Others are not used.
	Secrets map[string][]byte
}

// Play returns a tape that plays the run back.
func (r *Record) Play(o Options) *Tape {
	values, forms := make(map[string][]byte), new(redact.Secrets)
	for _, name := range r.SecretNames() {
		if value, ok := o.Secrets[name]; ok {
			values[name] = value
			forms.Add(name, value)
		}
	}
	given, checkpoint := newSecrets(values, forms), r.Checkpoint
	if len(r.Secrets) > 0 {
		checkpoint = given.show(checkpoint)
	}
	return &Tape{
		playing: true, services: r.Services, from: decoder{rest: r.events}, lenient: o.Changed, given: given,
		stopped: r.Outcome.Stopped, limit: maxDecoded, saved: checkpoint,
	}
}

// Start returns a function that makes tapes which play the start of the run's instance back.
func (r *Record) Start(o Options) func() *Tape {
	return func() *Tape {
		return &Tape{
			playing: true, from: decoder{rest: r.start}, lenient: o.Changed, limit: maxDecoded, given: newSecrets(nil, nil),
		}
	}
}
