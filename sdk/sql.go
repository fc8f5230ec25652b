package sdk

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// Database is a PostgreSQL database, which the manifest must grant in capabilities.sql. The first statement begins a
// transaction. With `commit: complete`, the default, it is committed together with the completion of the task, and
// undone if the handler returns an error. With `commit: call`, [Database.Commit] and [Database.Once] commit it.
//
// Statements have parameters $1, $2 and so on, and as many arguments: nil, bool, integers, floats, string (of any type
// in PostgreSQL's text format), []byte (bytea), time.Time, []string, []int64, and pointers to these, where nil is NULL.
type Database string

// SQLError is an error of PostgreSQL. After it, the database refuses all statements of the transaction until
// ROLLBACK TO a savepoint, or [Database.Rollback].
type SQLError struct {
	State      string // the SQLSTATE, such as 23505
	Message    string
	Detail     string
	Hint       string
	Position   int // the place in the statement, in characters from 1; 0 if unknown
	Schema     string
	Table      string
	Column     string
	DataType   string
	Constraint string
}

// Error returns the message, the detail and the SQLSTATE.
func (e *SQLError) Error() string {
	text := e.Message
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text + " (SQLSTATE " + e.State + ")"
}

// SQLState returns the SQLSTATE of an error; "" if it is no error of PostgreSQL.
func SQLState(err error) string {
	if e, ok := errors.AsType[*SQLError](err); ok {
		return e.State
	}
	return ""
}

// Column is a column of an answer.
type Column struct {
	Name string
	OID  uint32 // of its type, as in PostgreSQL's table pg_type
}

// Rows are the rows of an answer, all in memory.
type Rows struct {
	// Affected is how many rows were inserted, changed, deleted, selected or fetched.
	Affected int64
	Columns  []Column

	left    int // rows that follow
	rest    []byte
	current [][]byte // nil for NULL
}

// Exec runs a statement, and returns how many rows it affected.
func (d Database) Exec(statement string, args ...any) (affected int64, err error) {
	rows, err := d.Query(statement, args...)
	if err != nil {
		return 0, err
	}
	return rows.Affected, nil
}

// Query runs a statement, and returns its rows. An error of PostgreSQL is an [SQLError]. It returns [ErrLimit] if the
// answer or the time exceeds what the manifest allows, and [ErrUnavailable] if the database does not serve: then return
// the error, and the task runs again later without an attempt being counted.
func (d Database) Query(statement string, args ...any) (*Rows, error) {
	var parameters []byte
	for i, arg := range args {
		var ok bool
		if parameters, ok = appendArgument(parameters, arg); !ok {
			return nil, &callError{"sql " + string(d), errors.New("argument " + strconv.Itoa(i+1) + " has a type that is not supported: pass a string")}
		}
	}
	answer, err := services().SQL(string(d), statement, parameters)
	if err != nil {
		return nil, asking(err, "sql ", "", string(d))
	}
	return parseAnswer(answer)
}

// QueryRow runs a statement and scans its first row. It returns [ErrNotFound] if there is none.
func (d Database) QueryRow(statement string, args []any, into ...any) error {
	rows, err := d.Query(statement, args...)
	if err != nil {
		return err
	}
	if !rows.Next() {
		return ErrNotFound
	}
	return rows.Scan(into...)
}

// Commit commits the transaction. The manifest must say `commit: call`. If it returns [ErrUnavailable], it is not known
// whether the transaction was committed.
func (d Database) Commit() error { return d.commit("", nil) }

func (d Database) commit(step string, value []byte) error {
	answer, err := services().CommitSQL(string(d), step, value)
	if err != nil {
		return asking(err, "sql commit ", "", string(d))
	}
	_, err = parseAnswer(answer)
	return err
}

// Rollback undoes the transaction. The next statement begins a new one.
func (d Database) Rollback() error {
	return asking(services().RollbackSQL(string(d)), "sql rollback ", "", string(d))
}

// Once does a step of the task that must not be done twice, however often the task runs. If a run of the task has
// done the step, Once returns the value that it returned. Otherwise it calls do, and commits its statements together
// with its value. If do returns an error, its statements are undone. The manifest must say `commit: call`.
func (d Database) Once(step string, do func() ([]byte, error)) ([]byte, error) {
	value, err := services().StepSQL(string(d), step)
	if !errors.Is(err, ErrNotFound) {
		return value, asking(err, "sql step ", string(d), step)
	}
	if value, err = do(); err != nil {
		return nil, errors.Join(err, d.Rollback())
	}
	switch err = d.commit(step, value); {
	case errors.Is(err, ErrConflict): // another run was faster
		value, err = services().StepSQL(string(d), step)
		return value, asking(err, "sql step ", string(d), step)
	case err != nil:
		return nil, err
	}
	return value, nil
}

// Next goes on to the next row, and reports whether there is one.
func (r *Rows) Next() bool {
	if r.left == 0 {
		return false
	}
	r.left--
	r.current = make([][]byte, len(r.Columns))
	for i := range r.current {
		kind, n := r.rest[0], number32(r.rest[1:])
		if r.rest = r.rest[5:]; kind != 0 {
			r.current[i] = r.rest[:n:n]
		}
		r.rest = r.rest[n:]
	}
	return true
}

// Scan reads the values of the row into pointers: *string takes any type in PostgreSQL's text format, and *[]byte any
// type as its bytes. Others are *bool, *int, *int32, *int64, *float64 and *time.Time (date, timestamp, timestamptz).
// A pointer to a pointer becomes nil for NULL, and so does *[]byte. Others refuse NULL.
func (r *Rows) Scan(into ...any) error {
	if len(into) != len(r.Columns) {
		return errors.New("scan: the answer has " + strconv.Itoa(len(r.Columns)) + " columns, and " + strconv.Itoa(len(into)) + " pointers are given")
	}
	for i, to := range into {
		if why := scan(r.current[i], to); why != "" {
			return errors.New("scan column " + r.Columns[i].Name + ": " + why)
		}
	}
	return nil
}

func scan(value []byte, to any) (why string) {
	switch to := to.(type) {
	case *[]byte:
		*to = value
		return ""
	case **string:
		return scanNull(value, to)
	case **bool:
		return scanNull(value, to)
	case **int:
		return scanNull(value, to)
	case **int32:
		return scanNull(value, to)
	case **int64:
		return scanNull(value, to)
	case **float64:
		return scanNull(value, to)
	case **time.Time:
		return scanNull(value, to)
	}
	if value == nil {
		return "it is NULL: scan it into a pointer to a pointer"
	}
	text, err := string(value), error(nil)
	switch to := to.(type) {
	case *string:
		*to = text
	case *bool:
		if *to = text == "t"; text != "t" && text != "f" {
			return strconv.Quote(text) + " is no bool"
		}
	case *int:
		*to, err = strconv.Atoi(text)
	case *int32:
		var n int64
		n, err = strconv.ParseInt(text, 10, 32)
		*to = int32(n)
	case *int64:
		*to, err = strconv.ParseInt(text, 10, 64)
	case *float64:
		*to, err = strconv.ParseFloat(text, 64)
	case *time.Time:
		*to, err = parseTime(text)
	default:
		return "the pointer has a type that is not supported: use *string"
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func scanNull[T any](value []byte, to **T) string {
	if value == nil {
		*to = nil
		return ""
	}
	*to = new(T)
	return scan(value, any(*to))
}

// parseTime parses a date, a timestamp, or a timestamptz in any zone.
func parseTime(text string) (time.Time, error) {
	layout := "2006-01-02"
	if len(text) > len(layout) {
		layout = "2006-01-02 15:04:05"
		if zone := strings.LastIndexAny(text, "+-"); zone > len(layout)-1 {
			layout += "-07:00:00"[:len(text)-zone]
		}
	}
	return time.Parse(layout, text)
}

// The kinds of values.
const (
	kindNull = iota
	kindText
	kindBytes
)

func appendValue(to []byte, kind byte, data string) []byte {
	n := len(data)
	to = append(to, kind, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	return append(to, data...)
}

// appendArgument appends an argument as a value.
func appendArgument(to []byte, arg any) (_ []byte, ok bool) {
	var text string
	switch v := arg.(type) {
	case nil:
		return appendValue(to, kindNull, ""), true
	case []byte:
		if v == nil {
			return appendValue(to, kindNull, ""), true
		}
		return appendValue(to, kindBytes, string(v)), true
	case string:
		text = v
	case bool:
		text = strconv.FormatBool(v)
	case int:
		text = strconv.Itoa(v)
	case int16:
		text = strconv.Itoa(int(v))
	case int32:
		text = strconv.Itoa(int(v))
	case int64:
		text = strconv.FormatInt(v, 10)
	case uint32:
		text = strconv.FormatUint(uint64(v), 10)
	case uint64:
		text = strconv.FormatUint(v, 10)
	case float32:
		text = strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		text = strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		text = v.UTC().Format("2006-01-02 15:04:05.999999") + "+00"
	case []string:
		text = array(v, func(s string) string {
			return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
		})
	case []int64:
		text = array(v, func(n int64) string { return strconv.FormatInt(n, 10) })
	case *string:
		return appendPointer(to, v)
	case *bool:
		return appendPointer(to, v)
	case *int:
		return appendPointer(to, v)
	case *int32:
		return appendPointer(to, v)
	case *int64:
		return appendPointer(to, v)
	case *float64:
		return appendPointer(to, v)
	case *time.Time:
		return appendPointer(to, v)
	default:
		return to, false
	}
	return appendValue(to, kindText, text), true
}

func appendPointer[T any](to []byte, v *T) ([]byte, bool) {
	if v == nil {
		return appendArgument(to, nil)
	}
	return appendArgument(to, *v)
}

// array returns a list in the text format of an array.
func array[T any](items []T, text func(T) string) string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = text(item)
	}
	return "{" + strings.Join(all, ",") + "}"
}

func number32(b []byte) int { // by hand, since encoding/binary would link reflect
	return int(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
}

// parseAnswer reads an answer of the database.
func parseAnswer(b []byte) (*Rows, error) {
	text := func() string {
		n := number32(b)
		s := string(b[4:][:n])
		b = b[4+n:]
		return s
	}
	if rows := int32(number32(b)); rows >= 0 {
		r := &Rows{left: int(rows), Affected: int64(uint64(number32(b[4:])) | uint64(number32(b[8:]))<<32)}
		r.Columns = make([]Column, number32(b[12:]))
		b = b[16:]
		for i := range r.Columns {
			oid := number32(b)
			b = b[4:]
			r.Columns[i] = Column{text(), uint32(oid)}
		}
		r.rest = b
		return r, nil
	}
	e := new(SQLError)
	fields := number32(b[4:])
	b = b[8:]
	for range fields {
		code := b[0]
		b = b[1:]
		switch value := text(); code {
		case 'C':
			e.State = value
		case 'M':
			e.Message = value
		case 'D':
			e.Detail = value
		case 'H':
			e.Hint = value
		case 'P':
			e.Position, _ = strconv.Atoi(value)
		case 's':
			e.Schema = value
		case 't':
			e.Table = value
		case 'c':
			e.Column = value
		case 'd':
			e.DataType = value
		case 'n':
			e.Constraint = value
		}
	}
	return nil, e
}
