package sdk

import (
	"errors"
	"testing"
	"time"
)

// TestSQLAnswer: rows and errors of an answer are what the host wrote.
func TestSQLAnswer(t *testing.T) {
	t.Parallel()
	value := func(text string) []byte { return appendValue(nil, kindText, text) }
	answer := []byte("\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x06\x00\x00\x00")
	for _, name := range "abcdef" {
		answer = append(answer, "\x17\x00\x00\x00\x01\x00\x00\x00"+string(name)...)
	}
	for _, v := range [][]byte{
		value("42"), appendValue(nil, kindNull, ""), value("t"), value("2026-11-28 13:05:59.25+00"), appendValue(nil, kindBytes, "\x00\xff"), value("-1.5"),
	} {
		answer = append(answer, v...)
	}
	rows, err := parseAnswer(answer)
	if err != nil || rows.Affected != 5 || rows.Columns[1] != (Column{"b", 23}) || !rows.Next() {
		t.Fatalf("%+v, %v", rows, err)
	}
	var a int64
	var b *string
	var c bool
	var d time.Time
	var e []byte
	var f float64
	if err := rows.Scan(&a, &b, &c, &d, &e, &f); err != nil || a != 42 || b != nil || !c || string(e) != "\x00\xff" || f != -1.5 ||
		!d.Equal(time.Date(2026, 11, 28, 13, 5, 59, 250_000_000, time.UTC)) {
		t.Errorf("%d %v %v %s %q %v, %v", a, b, c, d, e, f, err)
	}
	if rows.Next() {
		t.Error("a second row")
	}
	var text string
	for want, into := range map[string][]any{
		"scan: the answer has 6 columns, and 1 pointers are given":                 {&text},
		"scan column b: it is NULL: scan it into a pointer to a pointer":           {&a, &text, &c, &d, &e, &f},
		"scan column a: the pointer has a type that is not supported: use *string": {new(complex64), &b, &c, &d, &e, &f},
	} {
		if err := rows.Scan(into...); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, err = parseAnswer([]byte("\xff\xff\xff\xff\x03\x00\x00\x00C\x05\x00\x00\x0023505M\x03\x00\x00\x00twon\x06\x00\x00\x00t_pkey"))
	if e, ok := errors.AsType[*SQLError](err); !ok || *e != (SQLError{State: "23505", Message: "two", Constraint: "t_pkey"}) || SQLState(err) != "23505" {
		t.Errorf("%+v", err)
	}
}

// TestSQLTimes: a time is read in each form that PostgreSQL writes.
func TestSQLTimes(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 11, 28, 13, 5, 59, 0, time.UTC)
	for _, text := range []string{"2026-11-28 13:05:59", "2026-11-28 13:05:59+00", "2026-11-28 18:35:59+05:30", "2026-11-28 11:05:59-02"} {
		if got, err := parseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	if got, err := parseTime("2026-11-28"); err != nil || got.Day() != 28 {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := parseTime("infinity"); err == nil {
		t.Error("infinity is a time")
	}
}

// TestSQLArguments: arguments become values of PostgreSQL's text format.
func TestSQLArguments(t *testing.T) {
	t.Parallel()
	three := 3
	for _, tt := range []struct {
		arg  any
		want string
	}{
		{nil, "\x00\x00\x00\x00\x00"},
		{(*int)(nil), "\x00\x00\x00\x00\x00"},
		{[]byte(nil), "\x00\x00\x00\x00\x00"},
		{[]byte{0xff}, "\x02\x01\x00\x00\x00\xff"},
		{"", "\x01\x00\x00\x00\x00"},
		{&three, "\x01\x01\x00\x00\x003"},
		{int64(-9), "\x01\x02\x00\x00\x00-9"},
		{true, "\x01\x04\x00\x00\x00true"},
		{0.5, "\x01\x03\x00\x00\x000.5"},
		{[]string{`a"b`, "c"}, "\x01\x0c\x00\x00\x00{\"a\\\"b\",\"c\"}"},
		{[]int64{1, 2}, "\x01\x05\x00\x00\x00{1,2}"},
		{time.Date(2026, 11, 28, 14, 0, 0, 5000, time.FixedZone("", 3600)), "\x01\x1d\x00\x00\x002026-11-28 13:00:00.000005+00"},
	} {
		if got, ok := appendArgument(nil, tt.arg); !ok || string(got) != tt.want {
			t.Errorf("%v: %q, want %q", tt.arg, got, tt.want)
		}
	}
	if _, ok := appendArgument(nil, struct{}{}); ok {
		t.Error("a struct is an argument")
	}
	if _, err := Database("shop").Query("SELECT 1"); !errors.Is(err, ErrNoHost) {
		t.Errorf("without a host: %v", err)
	}
}
