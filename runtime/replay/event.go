package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/service"
)

// kind says what a guest asked for. The numbers are part of the format.
type kind byte

const (
	clockWall kind = iota + 1
	clockMonotonic
	random
	deadline
	ending
	pace // the guest had to wait because it logged too fast
	kvGet
	kvSet
	kvDelete
	kvIncrement
	kvSwap
	kvList
	httpDo
	secretGet
	sqlQuery
	sqlCommit
	sqlRollback
	sqlStep
	enqueue
	publish
	checkpointSave
	dependencyList
	dependencyResult
	kinds // their number

	firstService = kvGet
	// withSecrets is added to the kind of an event whose answer has the names of secrets in place of their values.
	withSecrets kind = 0x80
)

// names are the names of the functions of quern_v1, also for functions of WASI and Extism that ask for the same.
var names = [kinds]string{
	clockWall: "clock (wall)", clockMonotonic: "clock (monotonic)", random: "random", deadline: "deadline",
	ending: "cancelled", pace: "log pace", kvGet: "kv_get", kvSet: "kv_set", kvDelete: "kv_delete",
	kvIncrement: "kv_increment", kvSwap: "kv_swap", kvList: "kv_list", httpDo: "http", secretGet: "secret_get",
	sqlQuery: "sql", sqlCommit: "sql_commit", sqlRollback: "sql_rollback", sqlStep: "sql_step", enqueue: "enqueue",
	publish: "publish", checkpointSave: "checkpoint_save", dependencyList: "dependencies",
	dependencyResult: "dependency_result",
}

// event is one thing that a guest asked for, with the answer.
type event struct {
	kind   kind
	number int64    // of a clock: nanoseconds since the reading before; of deadline and ending: the answer
	asked  []string // the arguments that identify a call of a service
	class  byte     // the class of the error; 0 for none
	text   string   // the error's text
	parts  [][]byte // the answer, or random bytes
}

// String describes what was asked, for people.
func (e *event) String() string {
	var text strings.Builder
	text.WriteString(names[e.kind&^withSecrets])
	for _, word := range e.asked {
		fmt.Fprintf(&text, " %q", redact.Shorten(word, maxShown))
	}
	return text.String()
}

// maxShown is the maximum length of an argument in a message, in bytes.
const maxShown = 200

// classes are the errors of services that guests can distinguish. Their places are part of the format: 0 is no error,
// and the first one is 1.
var classes = []error{
	service.ErrInvalid, service.ErrDenied, service.ErrNotFound, service.ErrTooBig, service.ErrQuota, service.ErrConflict,
	service.ErrLost, service.ErrUnavailable, service.ErrLimit, context.DeadlineExceeded, context.Canceled,
}

// unknown is the class of an error that is a fault of the host.
const unknown = 0xff

// errHost stands for a fault of the host in a replay.
var errHost = errors.New("the host failed in this call when the run was recorded")

func classOf(err error) byte {
	if err == nil {
		return 0
	}
	for i, class := range classes {
		if errors.Is(err, class) {
			return byte(i + 1)
		}
	}
	return unknown
}

// recordedError is the error of a service in a replay.
type recordedError struct {
	class error
	text  string
}

func (e *recordedError) Error() string { return e.text }
func (e *recordedError) Unwrap() error { return e.class }

// err returns the recorded error, nil for none.
func (e *event) err() error {
	switch {
	case e.class == 0:
		return nil
	case int(e.class) <= len(classes):
		return &service.Confidential{Err: &recordedError{classes[e.class-1], e.text}, Told: e.text}
	}
	return errHost
}

// append encodes the event behind b. An event begins with its kind. Numbers are varints, and texts have their length
// before them; that of bytes is one more, so that 0 stands for nil.
func (e *event) append(b []byte) []byte {
	b = append(b, byte(e.kind))
	switch kind := e.kind &^ withSecrets; {
	case kind == pace:
	case kind == random:
		b = appendBytes(b, e.parts[0])
	case kind < firstService:
		b = binary.AppendVarint(b, e.number)
	default:
		b = binary.AppendUvarint(b, uint64(len(e.asked)))
		for _, word := range e.asked {
			b = append(binary.AppendUvarint(b, uint64(len(word))), word...)
		}
		if b = append(b, e.class); e.class != 0 {
			b = append(binary.AppendUvarint(b, uint64(len(e.text))), e.text...)
		}
		b = binary.AppendUvarint(b, uint64(len(e.parts)))
		for _, part := range e.parts {
			b = appendBytes(b, part)
		}
	}
	return b
}

func appendBytes(b, p []byte) []byte {
	if p == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(p))+1), p...)
}

// ErrDamaged means that a record, or its rest, cannot be read.
var ErrDamaged = errors.New("the record is damaged")

// decoder reads encoded values. After an error, all values are zero.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail() { d.rest, d.err = nil, ErrDamaged }

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.fail()
		return nil
	}
	p := d.rest[:n:n]
	d.rest = d.rest[n:]
	return p
}

func (d *decoder) text() string { return string(d.take(d.uvarint())) }

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	return d.take(n - 1)
}

// count reads the number of values that follow, each of which takes at least a byte.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail()
		return 0
	}
	return int(n)
}

// event reads an event.
func (d *decoder) event() (e event) {
	e.kind = kind(d.byte())
	switch kind := e.kind &^ withSecrets; {
	case kind == 0 || kind >= kinds:
		d.fail()
	case kind == pace:
	case kind == random:
		e.parts = [][]byte{d.bytes()}
	case kind < firstService:
		e.number = d.varint()
	default:
		for range d.count() {
			e.asked = append(e.asked, d.text())
		}
		if e.class = d.byte(); e.class != 0 {
			e.text = d.text()
		}
		for range d.count() {
			e.parts = append(e.parts, d.bytes())
		}
	}
	if d.err != nil {
		return event{}
	}
	return e
}
