package sql

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"

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

// size returns how many bytes a row needs.
func size(row [][]byte) (n int) {
	for _, value := range row {
		n += 5 + len(value)
	}
	return n
}

// add writes a row.
func (a *answer) add(columns []pgconn.FieldDescription, row [][]byte) {
	a.rows++
	for i, value := range row {
		switch {
		case value == nil:
			a.data = appendInt(append(a.data, byte(service.SQLNull)), 0)
		case columns[i].DataTypeOID == byteaOID && len(value) >= 2 && value[0] == '\\' && value[1] == 'x':
			a.data = appendInt(append(a.data, byte(service.SQLBytes)), hex.DecodedLen(len(value)-2))
			a.data, _ = hex.AppendDecode(a.data, value[2:]) // the server has written it
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
