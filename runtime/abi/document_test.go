package abi

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocument compares the tables of sdk/ABI.md with the code: names, parameters, where a function works, and errors.
func TestDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../sdk/ABI.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if name := strings.TrimSpace(cells[min(1, len(cells)-1)]); len(cells) == 6 && strings.HasPrefix(name, "`") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows[strings.Trim(name, "`")] = cells[2:5]
		}
	}
	for _, f := range Functions() {
		row := rows[f.Name]
		if row == nil {
			t.Errorf("the page has no %s", f.Name)
			continue
		}
		delete(rows, f.Name)
		if got, want := parameters(row[0]), types(f.Params); got != want {
			t.Errorf("the page has %s(%s), want %s", f.Name, got, want)
		}
		stage := ""
		switch g := setup(t, 1, Config{Stage: Initializing}); {
		case f.Name == "result_read" || f.Name == "result_size":
			stage = "slot"
		case g.call(f.Name, make([]uint64, len(f.Params))...) != errnoState:
			stage = "start"
		case setup(t, 1, Config{Stage: Warming}).call(f.Name, make([]uint64, len(f.Params))...) != errnoState:
			stage = "warm"
		}
		if row[2] != stage {
			t.Errorf("the page says that %s works in %q, want %q", f.Name, row[2], stage)
		}
	}
	for name := range rows {
		t.Errorf("the page has %s, which is not here", name)
	}
	for number, name := range names {
		if row := fmt.Sprintf("| −%d | %s |", -number, name); number < 0 && !strings.Contains(string(page), row) {
			t.Errorf("the page has no row %s", row)
		}
	}
}

// parameters turns what the page says of them into types: what has none of its own is an i32.
func parameters(text string) string {
	var list []string
	for field := range strings.SplitSeq(text, ",") {
		words := strings.Fields(field)
		if len(words) == 0 {
			continue
		}
		switch last := words[len(words)-1]; last {
		case "i64", "f64":
			list = append(list, last)
		default:
			list = append(list, "i32")
		}
	}
	return strings.Join(list, " ")
}
