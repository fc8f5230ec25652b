package sql

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quern-project/quern/runtime/service"
)

// byteaOID is the type of byte strings, whose text is \x and hexadecimal digits.
const byteaOID = 17

// answerHead is the size of an answer's rows, affected rows and number of columns.
const answerHead = 4 + 8 + 4

// answer is an answer in the layout of sdk/ABI.md.
type answer struct {
	data []byte
	rows int
}

func appendInt(to []byte, n int) []byte { return binary.LittleEndian.AppendUint32(to, uint32(n)) }

func appendText(to []byte, text string) []byte { return append(appendInt(to, len(text)), text...) }

// begin writes the columns of an answer. finish fills in what is known only then.
func (a *answer) begin(columns []pgconn.FieldDescription) {
	a.data = append(a.data, make([]byte, answerHead)...)
	binary.LittleEndian.PutUint32(a.data[12:], uint32(len(columns)))
	for i := range columns {
		a.data = appendText(appendInt(a.data, int(columns[i].DataTypeOID)), columns[i].Name)
	}
}

// size returns how many bytes a row needs in an answer.
func size(columns []pgconn.FieldDescription, row [][]byte) (n int) {
	for i, value := range row {
		n += 5
		if digits, ok := hexadecimal(columns[i], value); ok {
			n += hex.DecodedLen(len(digits))
		} else {
			n += len(value)
		}
	}
	return n
}

// hexadecimal returns the digits of a bytea; ok is false for values of other types.
func hexadecimal(column pgconn.FieldDescription, value []byte) (digits []byte, ok bool) {
	digits, ok = bytes.CutPrefix(value, []byte(`\x`))
	return digits, ok && column.DataTypeOID == byteaOID
}

// add writes a row.
func (a *answer) add(columns []pgconn.FieldDescription, row [][]byte) {
	a.rows++
	for i, value := range row {
		digits, isBytes := hexadecimal(columns[i], value)
		switch {
		case value == nil:
			a.data = appendInt(append(a.data, byte(service.SQLNull)), 0)
		case isBytes:
			a.data = appendInt(append(a.data, byte(service.SQLBytes)), hex.DecodedLen(len(digits)))
			a.data, _ = hex.AppendDecode(a.data, digits) // the server has written it
		default:
			a.data = appendText(append(a.data, byte(service.SQLText)), string(value))
		}
	}
}

// finish completes the answer.
func (a *answer) finish(affected int64) []byte {
	binary.LittleEndian.PutUint32(a.data, uint32(a.rows))
	binary.LittleEndian.PutUint64(a.data[4:], uint64(affected))
	return a.data
}

// done is the answer of a statement without rows and columns.
func done() []byte { return make([]byte, answerHead) }

// maxErrorText is the most bytes of each text in an error of the database.
const maxErrorText = 4 << 10

// bounded returns an error of the database with the fields that handlers see and bounded texts. It keeps nothing of the
// message that the server sent. It returns nil for nil.
func bounded(err *pgconn.PgError) *pgconn.PgError {
	if err == nil {
		return nil
	}
	cut := func(text string) string {
		if len(text) <= maxErrorText {
			return strings.Clone(text)
		}
		return strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return &pgconn.PgError{
		Code: cut(err.Code), Message: cut(err.Message), Detail: cut(err.Detail), Hint: cut(err.Hint), Position: err.Position,
		SchemaName: cut(err.SchemaName), TableName: cut(err.TableName), ColumnName: cut(err.ColumnName),
		DataTypeName: cut(err.DataTypeName), ConstraintName: cut(err.ConstraintName),
	}
}

// refusal returns the answer for an error of the database.
func refusal(err *pgconn.PgError) []byte {
	fields := []struct {
		code byte
		text string
	}{
		{'C', err.Code},
		{'M', err.Message},
		{'D', err.Detail},
		{'H', err.Hint},
		{'s', err.SchemaName},
		{'t', err.TableName},
		{'c', err.ColumnName},
		{'d', err.DataTypeName},
		{'n', err.ConstraintName},
	}
	data := binary.LittleEndian.AppendUint32(nil, 1<<32-1)
	data = appendInt(data, 0)
	n := 0
	add := func(code byte, text string) {
		n++
		data = appendText(append(data, code), text)
	}
	for i, f := range fields {
		if f.text != "" || i < 2 { // code and message are always there
			add(f.code, f.text)
		}
	}
	if err.Position > 0 {
		add('P', strconv.Itoa(int(err.Position)))
	}
	binary.LittleEndian.PutUint32(data[4:], uint32(n))
	return data
}
