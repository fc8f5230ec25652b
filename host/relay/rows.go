package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/taskjson"
)

const (
	batchRows  = 1000
	batchBytes = 16 << 20
	// maxPayload is how many bytes of parameters a row of another library's table may have. The outbox has it as a CHECK.
	maxPayload = 64 << 20
	// onceLife is how long Redis remembers the ID of a row that is not deleted yet. forgetAfter is how long it remembers
	// the ID after that: a database that fails over may have lost the deletion.
	onceLife    = 30 * 24 * time.Hour
	forgetAfter = time.Minute
	// fullPause is how long the rows of a target are left out after it has refused one for want of room.
	fullPause = time.Second
)

// row is a row of the outbox.
type row struct {
	seq                               int64
	id, queue, topic, tenant, options string
	report                            string // the option report, as JSON; "" for none
	created                           time.Time
	age                               time.Duration // since its insertion, by the database's clock
	parameters                        []byte
}

// target is where a row goes, as the statement readRows names it.
func (r *row) target() string { return r.tenant + " " + r.queue + " " + r.topic }

// refusal is a row that can be no task.
type refusal struct {
	seq int64
	err error
}

// readRows reads the first rows after seq $1, without those for the targets $2: at most $3, and after the first one at
// most $4 bytes. The size of a value is known without reading it.
const readRows = `
SELECT seq, id, queue, topic, tenant, options - 'report', options->'report',
  extract(epoch FROM clock_timestamp() - created), extract(epoch FROM created), encode(parameters, 'hex'), json
FROM (
  SELECT *, sum(size) OVER (ORDER BY seq) - size AS before
  FROM (
    SELECT *, coalesce(octet_length(parameters), octet_length(json::text), 0)::bigint AS size
    FROM quern.outbox
    WHERE seq > $1 AND concat(tenant, ' ', queue, ' ', topic) <> ALL ($2::text[])
    ORDER BY seq LIMIT $3
  ) first
) sized
WHERE before < $4 ORDER BY seq`

// read reads the next rows after a seq.
func read(ctx context.Context, db *postgres.Conn, after int64, without []string) (rows []row, err error) {
	err = db.Query(ctx, func(v postgres.Row) {
		r := row{
			seq: v.Int(0), id: v.Text(1), queue: v.Text(2), topic: v.Text(3), tenant: v.Text(4), options: v.Text(5),
			report: v.Text(6), age: v.Seconds(7), created: admin.Moment(v.Seconds(8).Seconds()), parameters: v.Hex(9),
		}
		if v[10] != nil {
			r.parameters = slices.Clone(v[10])
		}
		rows = append(rows, r)
	}, readRows, after, without, batchRows, batchBytes)
	return rows, err
}

// blocks cuts rows into blocks that have at most batchBytes after their first row.
func blocks[T any](rows []T, size func(T) int64) (all [][]T) {
	begin, sum := 0, int64(0)
	for i, row := range rows {
		if i > begin && sum > batchBytes {
			all = append(all, rows[begin:i])
			begin, sum = i, 0
		}
		sum += min(size(row), maxPayload)
	}
	if begin < len(rows) {
		all = append(all, rows[begin:])
	}
	return all
}

// tooLarge is why a row whose payload is larger than maxPayload can be no task.
func tooLarge(size int64) error {
	return fmt.Errorf("the payload has %d bytes: a task may have %s", size, units.FormatSize(maxPayload))
}

// outcome says what became of rows.
type outcome struct {
	sent    []*row // they are in Redis
	refused []refusal
	full    []string // targets that take no more for now
	why     error    // of the last of full
}

// send makes tasks and publications of rows, in their order. After an error of Redis, the remaining rows are neither
// sent nor refused. report is the name for reports of ends.
func (r *Relay) send(ctx context.Context, rows []row, report string) (out outcome, err error) {
	groups := make(map[string]*group)
	var order []*group
	flush := func() {
		for _, g := range order {
			if err == nil && !slices.Contains(out.full, g.rows[0].target()) {
				err = r.enqueue(ctx, g, &out)
			}
		}
		clear(groups)
		order = nil
	}
	for i := range rows {
		row := &rows[i]
		client := r.client(row.tenant)
		if client == nil {
			out.refused = append(out.refused, refusal{row.seq, fmt.Errorf("the relay has no tenant %q: name it with --tenants", row.tenant)})
			continue
		}
		if row.created.Before(r.config.NotBefore) {
			out.refused = append(out.refused, refusal{row.seq, fmt.Errorf("it was inserted at %s, before --not-before",
				row.created.UTC().Format(time.RFC3339))})
			continue
		}
		if row.topic != "" {
			if flush(); err == nil && !slices.Contains(out.full, row.target()) {
				err = r.publish(ctx, client, row, &out)
			}
			continue
		}
		spec, wrong := row.spec(report)
		if wrong != nil {
			out.refused = append(out.refused, refusal{row.seq, wrong})
			continue
		}
		if len(spec.After) > 0 {
			flush() // its dependencies may be rows of other queues
		}
		g := groups[row.target()]
		if g == nil {
			g = &group{queue: client.Queue(row.queue)}
			groups[row.target()], order = g, append(order, g)
		}
		g.rows, g.specs = append(g.rows, row), append(g.specs, spec)
	}
	flush()
	return out, err
}

// group is the rows of one queue.
type group struct {
	queue *queue.Queue
	rows  []*row
	specs []queue.Spec
}

// spec returns the task of a row.
func (r *row) spec(report string) (queue.Spec, error) {
	spec, err := queue.Spec{Options: queue.Options{ID: r.id}}, error(nil)
	if r.options != "{}" {
		spec, err = admin.ParseTaskLine([]byte(r.options), spec.Options)
	}
	switch {
	case err != nil:
		return spec, err
	case !slices.Contains([]string{"", "true", "false"}, r.report):
		return spec, fmt.Errorf("option report is %s: write true or false", r.report)
	case spec.Parameters != nil:
		return spec, errors.New("options has parameters: put them into the column parameters or json")
	case spec.ID != r.id:
		return spec, errors.New("options has an id: put it into the column id")
	case spec.Delay > 0: // the row's age and the delay are differences of one clock each, so the clocks need not agree
		spec.Delay = max(0, spec.Delay-max(0, r.age))
	}
	spec.Parameters, spec.Once = r.parameters, onceLife
	if r.report == "true" {
		spec.Report = report
	}
	return spec, (&listen.Child{Queue: r.queue, Spec: spec}).Validate()
}

// enqueue enqueues the rows of a group. If Redis refuses one of them, each is tried alone.
func (r *Relay) enqueue(ctx context.Context, g *group, out *outcome) error {
	receipts, err := g.queue.EnqueueMany(ctx, g.specs)
	switch {
	case errors.Is(err, queue.ErrQueueFull), errors.Is(err, queue.ErrManyQueues), errors.Is(err, queue.ErrDamaged):
		if len(g.rows) > 1 && errors.Is(err, queue.ErrQueueFull) {
			return r.enqueueEach(ctx, g, out) // a block is refused as a whole, and some of it may fit
		}
		out.full, out.why = append(out.full, g.rows[0].target()), err
		return nil
	case errors.Is(err, queue.ErrDependency) || errors.Is(err, queue.ErrInvalid):
		if len(g.rows) == 1 {
			out.refused = append(out.refused, refusal{g.rows[0].seq, err})
			return nil
		}
		return r.enqueueEach(ctx, g, out)
	case err != nil:
		return err
	}
	for i, receipt := range receipts {
		if receipt.Taken {
			out.refused = append(out.refused, refusal{g.rows[i].seq, fmt.Errorf("another task has the ID %q: delete this row, or retry it with another id", g.rows[i].id)})
		} else {
			out.sent = append(out.sent, g.rows[i])
		}
	}
	return nil
}

// enqueueEach enqueues the rows of a group one by one, up to one for which the queue has no room.
func (r *Relay) enqueueEach(ctx context.Context, g *group, out *outcome) error {
	for i := range g.rows {
		err := r.enqueue(ctx, &group{g.queue, g.rows[i : i+1], g.specs[i : i+1]}, out)
		if err != nil || slices.Contains(out.full, g.rows[i].target()) {
			return err
		}
	}
	return nil
}

// publish publishes a row.
func (r *Relay) publish(ctx context.Context, client *queue.Client, row *row, out *outcome) error {
	options, err := row.publication()
	if err == nil {
		var published queue.Published
		published, err = client.Publish(ctx, row.topic, row.parameters, options)
		if err == nil && published.Taken {
			err = fmt.Errorf("%w: another publication has the ID %q: delete this row, or retry it with another id", queue.ErrInvalid, row.id)
		}
	}
	switch {
	case err == nil:
		out.sent = append(out.sent, row)
	case errors.Is(err, queue.ErrQueueFull), errors.Is(err, queue.ErrManyQueues), errors.Is(err, queue.ErrDamaged):
		out.full, out.why = append(out.full, row.target()), err
	case errors.Is(err, queue.ErrInvalid), errors.Is(err, queue.ErrExists):
		out.refused = append(out.refused, refusal{row.seq, err})
	default:
		return err
	}
	return nil
}

// publication returns the options of the publication of a row.
func (r *row) publication() (queue.PublishOptions, error) {
	if r.report != "" {
		return queue.PublishOptions{}, fmt.Errorf("%w: option report is for tasks: a publication has no end", queue.ErrInvalid)
	}
	var o taskjson.Publication
	decoder := json.NewDecoder(strings.NewReader(r.options))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		return queue.PublishOptions{}, fmt.Errorf("%w: options: %s: a publication may have attributes, parent, traceparent and tracestate",
			queue.ErrInvalid, strings.TrimPrefix(err.Error(), "json: "))
	}
	options := queue.PublishOptions{
		ID: r.id, Attributes: o.Attributes, Parent: o.Parent, Traceparent: o.Traceparent, Tracestate: o.Tracestate,
	}
	return options, nil
}
