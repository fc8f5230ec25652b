// Package outbox enqueues and publishes in a transaction of a PostgreSQL: the application inserts a row, and a relay
// (`quern relay`) makes the task once the transaction is committed. The package needs no driver: it returns a statement
// with its arguments, for pgx, database/sql and what is built on them.
//
//	statement, args, err := outbox.Enqueue("mail", queue.Spec{Parameters: body}, outbox.Options{})
//	if err != nil {
//		return err
//	}
//	_, err = tx.Exec(ctx, statement, args...)
package outbox

import (
	"encoding/json"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/taskjson"
)

// Options are options of a row. The zero value works.
type Options struct {
	Tenant string // default: the relay's
	Report bool   // write the end of the task into quern.ended
}

const insert = "INSERT INTO quern.outbox (id, queue, topic, parameters, options, tenant) VALUES ($1, $2, $3, $4, $5, $6)"

// Enqueue returns the statement that enqueues a task, and its arguments: strings, []byte and nil. If the task has no
// ID, it gets a new one, the first argument. The error wraps queue.ErrInvalid.
func Enqueue(name string, spec queue.Spec, options Options) (statement string, args []any, err error) {
	if spec.ID == "" {
		spec.ID = queue.NewID()
	}
	if err := queue.ValidTarget(name); err != nil {
		return "", nil, err
	}
	if err := spec.ValidateTarget(); err != nil {
		return "", nil, err
	}
	if err := spec.Validate(); err != nil {
		return "", nil, err
	}
	if spec.Once != 0 || spec.Report != "" {
		return "", nil, fmt.Errorf("%w: Once and Report are the relay's: use Options.Report of this package", queue.ErrInvalid)
	}
	line := taskjson.LineOf(&queue.Spec{Options: spec.Options})
	line.ID = "" // it has a column
	text, err := json.Marshal(struct {
		taskjson.TaskLine
		Report bool `json:"report,omitempty"`
	}{line, options.Report})
	if err != nil {
		return "", nil, fmt.Errorf("%w: options: %w", queue.ErrInvalid, err)
	}
	return insert, []any{spec.ID, name, nil, bytes(spec.Parameters), string(text), optional(options.Tenant)}, nil
}

// Publish is Enqueue for a publication.
func Publish(topic string, payload []byte, publication queue.PublishOptions, options Options) (
	statement string, args []any, err error,
) {
	if publication.ID == "" {
		publication.ID = queue.NewID()
	}
	p := queue.Publication{
		ID: publication.ID, Topic: topic, Attributes: publication.Attributes, Parent: publication.Parent,
		Traceparent: publication.Traceparent,
	}
	if err := p.Validate(); err != nil {
		return "", nil, err
	}
	text, err := json.Marshal(taskjson.Publication{
		Attributes: publication.Attributes, Parent: publication.Parent, Traceparent: publication.Traceparent,
		Tracestate: publication.Tracestate,
	})
	if err != nil {
		return "", nil, fmt.Errorf("%w: options: %w", queue.ErrInvalid, err)
	}
	return insert, []any{publication.ID, nil, topic, bytes(payload), string(text), optional(options.Tenant)}, nil
}

// bytes returns nil, which is NULL, for none.
func bytes(value []byte) any {
	if len(value) == 0 {
		return nil
	}
	return value
}

// optional returns nil, which is NULL, for "".
func optional(text string) any {
	if text == "" {
		return nil
	}
	return text
}
