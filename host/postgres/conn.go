package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Conn is a connection. It is used by one goroutine at a time. A call whose context ends closes the connection.
type Conn struct {
	conn     *pgconn.PgConn
	address  *Address
	notified bool // a notification came that Wait has not reported
}

// Raw returns the connection of the driver, for package host/sql.
func (c *Conn) Raw() *pgconn.PgConn { return c.conn }

// closeTimeout is how long Close waits for the server.
const closeTimeout = 2 * time.Second

// Close ends the connection. It can be called twice.
func (c *Conn) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = c.conn.Close(ctx) // it is gone in any case
}

// Row is a row of an answer: its values in PostgreSQL's text format, nil for NULL. It is valid until the next one.
type Row [][]byte

// Text returns a value as text; "" for NULL.
func (r Row) Text(column int) string { return string(r[column]) }

// Int returns a whole number; 0 for NULL.
func (r Row) Int(column int) int64 {
	n, _ := strconv.ParseInt(string(r[column]), 10, 64)
	return n
}

// Bool returns a truth value; false for NULL.
func (r Row) Bool(column int) bool { return string(r[column]) == "t" }

// Seconds returns a number of seconds, such as extract(epoch from ...) gives it.
func (r Row) Seconds(column int) time.Duration {
	seconds, _ := strconv.ParseFloat(string(r[column]), 64)
	return time.Duration(seconds * float64(time.Second))
}

// Hex returns the bytes of a value in hexadecimal, as encode(value, 'hex') gives it; nil for NULL. The text format of
// bytea itself depends on a setting.
func (r Row) Hex(column int) []byte {
	if r[column] == nil {
		return nil
	}
	value, err := hex.AppendDecode([]byte{}, r[column])
	if err != nil {
		return nil
	}
	return value
}

// Query runs one statement, and calls each for every row of its answer; each may be nil. Arguments are strings,
// integers, []byte, lists of strings or integers, and nil.
func (c *Conn) Query(ctx context.Context, each func(Row), statement string, args ...any) error {
	values, formats, err := parameters(args)
	if err != nil {
		return err
	}
	answer := c.conn.ExecParams(ctx, statement, values, nil, formats, nil)
	for answer.NextRow() {
		if each != nil {
			each(answer.Values())
		}
	}
	_, err = answer.Close()
	return Readable(err)
}

// QueryLocks is Query for a statement that waits at most for wait for each lock that others hold. The bound lasts until
// the end of the transaction, so it also works behind a pooler. The statement first runs before it, in the same
// transaction and without the bound.
func (c *Conn) QueryLocks(
	ctx context.Context, first string, wait time.Duration, each func(Row), statement string, args ...any,
) error {
	values, formats, err := parameters(args)
	if err != nil {
		return err
	}
	batch := &pgconn.Batch{}
	batch.ExecParams(first, nil, nil, nil, nil)
	batch.ExecParams(fmt.Sprintf("SELECT set_config('lock_timeout', '%d', true)", wait.Milliseconds()), nil, nil, nil, nil)
	batch.ExecParams(statement, values, nil, formats, nil)
	answers := c.conn.ExecBatch(ctx, batch)
	const last = 2
	for i := 0; answers.NextResult(); i++ {
		answer := answers.ResultReader()
		for answer.NextRow() {
			if i == last && each != nil {
				each(answer.Values())
			}
		}
		_, _ = answer.Close() // its error is that of answers
	}
	return Readable(answers.Close())
}

// Exec runs one statement, and returns how many rows it changed.
func (c *Conn) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	values, formats, err := parameters(args)
	if err != nil {
		return 0, err
	}
	tag, err := c.conn.ExecParams(ctx, statement, values, nil, formats, nil).Close()
	return tag.RowsAffected(), Readable(err)
}

// Script runs several statements in one transaction.
func (c *Conn) Script(ctx context.Context, statements string) error {
	_, err := c.conn.Exec(ctx, statements).ReadAll()
	return Readable(err)
}

// Wait waits for a notification, until ctx ends. It reports whether one came since the last call.
func (c *Conn) Wait(ctx context.Context) (bool, error) {
	if !c.notified {
		if err := c.conn.WaitForNotification(ctx); err != nil && (ctx.Err() == nil || c.conn.IsClosed()) {
			return false, Readable(err)
		}
	}
	came := c.notified
	c.notified = false
	return came, nil
}

// OwnSession reports whether the connection has a session of the server for itself. Behind a pooler that gives each
// transaction another session, notifications do not arrive, and locks of the session belong to anybody.
func (c *Conn) OwnSession(ctx context.Context) (bool, error) {
	session, err := c.session(ctx)
	if err != nil || session == int64(c.conn.PID()) { // a pooler makes numbers of its own
		return err == nil, err
	}
	other, err := c.address.Connect(ctx, "quern")
	if err != nil {
		return false, err
	}
	defer other.Close()
	for range ownLooks {
		same, err := c.keeps(ctx, other, session)
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// keeps reports whether the connection has this session of the server, before and while another connection has a
// transaction, which has another session. A pooler gives whoever asks next the session that was given back last: first
// that of c to the other one, and in the next look that of the other one to c.
func (c *Conn) keeps(ctx context.Context, other *Conn, session int64) (bool, error) {
	before, err := c.session(ctx)
	if err != nil || before != session {
		return false, err
	}
	if _, err := other.Exec(ctx, "BEGIN"); err != nil {
		return false, err
	}
	its, err := other.session(ctx)
	if err != nil || its == session {
		return false, err
	}
	now, err := c.session(ctx)
	if err != nil || now != session {
		return false, err
	}
	_, err = other.Exec(ctx, "COMMIT")
	return true, err
}

// ownLooks is how often OwnSession looks whether a pooler gives the connection another session.
const ownLooks = 10

// session returns the number of the session that runs this statement.
func (c *Conn) session(ctx context.Context) (number int64, err error) {
	err = c.Query(ctx, func(v Row) { number = v.Int(0) }, "SELECT pg_backend_pid()")
	return number, err
}

// ServerVersion returns the server's version, as in 15.18.
func (c *Conn) ServerVersion() string {
	version, _, _ := strings.Cut(c.conn.ParameterStatus("server_version"), " ")
	return version
}

// parameters converts arguments to PostgreSQL's text format, and []byte to its binary one.
func parameters(args []any) (values [][]byte, formats []int16, err error) {
	values, formats = make([][]byte, len(args)), make([]int16, len(args))
	for i, arg := range args {
		switch value := arg.(type) {
		case nil:
		case string:
			values[i] = []byte(value)
		case []byte:
			values[i], formats[i] = append([]byte{}, value...), 1
		case int:
			values[i] = strconv.AppendInt(nil, int64(value), 10)
		case int64:
			values[i] = strconv.AppendInt(nil, value, 10)
		case bool:
			values[i] = strconv.AppendBool(nil, value)
		case []int64:
			values[i] = array(value, func(n int64) string { return strconv.FormatInt(n, 10) })
		case []string:
			values[i] = array(value, quoted)
		case []*string:
			values[i] = array(value, func(s *string) string {
				if s == nil {
					return "NULL"
				}
				return quoted(*s)
			})
		default:
			return nil, nil, fmt.Errorf("argument %d has the type %T", i+1, arg)
		}
	}
	return values, formats, nil
}

// array returns a list in the text format of an array.
func array[T any](items []T, text func(T) string) []byte {
	var b strings.Builder
	b.WriteByte('{')
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text(item))
	}
	b.WriteByte('}')
	return []byte(b.String())
}

var arrayQuoting = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoted(s string) string { return `"` + arrayQuoting.Replace(s) + `"` }

// State returns the SQLSTATE of a server's error; "" if it is no such error.
func State(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refused.Code
	}
	return ""
}

// serverError is an error of the server, in words for people.
type serverError struct{ *pgconn.PgError }

func (e serverError) Unwrap() error { return e.PgError }

func (e serverError) Error() string {
	text := fmt.Sprintf("%s (SQLSTATE %s)", e.Message, e.Code)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Readable gives an error of the server words for people.
func Readable(err error) error {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return serverError{refused}
	}
	return err
}
