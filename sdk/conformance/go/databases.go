package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk"
)

// tellSQL writes an answer, or the SQLSTATE and constraint of an error of the database.
func (g *guest) tellSQL(verb string, err error, data ...string) {
	refused, ok := errors.AsType[*sdk.SQLError](err)
	if !ok {
		g.tell(verb, err, data...)
		return
	}
	g.output.WriteString(strings.TrimSuffix(verb+" "+refused.State+" "+refused.Constraint, " ") + "\n")
}

// statement returns the words from i on as one text.
func statement(w []string, i int) string { return strings.TrimRight(strings.Join(w[i:], " "), " ") }

func (g *guest) sql(w []string) {
	end := 3 + int(number(w[2]))
	args := make([]any, 0, end-3)
	for _, word := range w[3:end] {
		if word == "!" {
			args = append(args, nil)
		} else {
			args = append(args, text(word))
		}
	}
	rows, err := sdk.Database(text(w[1])).Query(statement(w, end), args...)
	if err != nil {
		g.tellSQL(w[0], err)
		return
	}
	data := []string{strconv.FormatInt(rows.Affected, 10)}
	values := make([]*string, len(rows.Columns))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			g.ending, g.ended = err, true
			return
		}
		for _, value := range values {
			if value == nil {
				data = append(data, "!")
			} else {
				data = append(data, *value)
			}
		}
	}
	g.tell(w[0], nil, data...)
}

func copyKinds(d sdk.Database) error {
	var (
		flag                                  bool
		small                                 int32
		large                                 int64
		double                                float64
		exact, word, document, ever, key, day string
		numbers, words                        string
		missing                               *string
		bytes                                 []byte
		at                                    time.Time
	)
	err := d.QueryRow("SELECT * FROM kinds WHERE id = 'a'", nil, new(string), &flag, &small, &large, &exact, &double,
		&word, &missing, &document, &bytes, &numbers, &words, &at, &ever, &key, &day)
	if err != nil {
		return err
	}
	const insert = "INSERT INTO kinds VALUES ('b', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
	_, err = d.Exec(insert, flag, small, large, exact, double, word, missing, document, bytes, numbers, words,
		at, ever, key, day)
	return err
}

func (g *guest) step(w []string) {
	d := sdk.Database(text(w[1]))
	value, err := d.Once(w[2], func() ([]byte, error) {
		_, err := d.Exec(statement(w, 4))
		return []byte(text(w[3])), err
	})
	g.tellSQL(w[0], err, string(value))
}
