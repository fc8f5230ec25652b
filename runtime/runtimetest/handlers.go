package runtimetest

import (
	"embed"
	"fmt"
	"strings"
	"testing"
)

//go:embed guests/handlers
var handlers embed.FS

// Language is a language in which this package has handlers.
type Language string

// The languages of handlers.
const (
	C              Language = "C"
	Rust           Language = "Rust"
	Go             Language = "Go"
	AssemblyScript Language = "AssemblyScript"
)

// Languages returns all languages of handlers.
func Languages() []Language { return []Language{C, Rust, Go, AssemblyScript} }

// BuildHandler compiles one source in the language to a handler.
func (l Language) BuildHandler(t testing.TB, source string) []byte {
	t.Helper()
	switch l {
	case C:
		return BuildCHandler(t, source)
	case Rust:
		return BuildRust(t, source, "--crate-type=cdylib")
	case Go:
		return BuildGo(t, source, "-buildmode=c-shared")
	case AssemblyScript:
		return BuildAssemblyScript(t, source, "--exportStart", "_initialize")
	}
	t.Fatalf("no language %q", l)
	return nil
}

// HandlerSource returns the source of one of this package's handlers: empty, json or residue.
func (l Language) HandlerSource(t testing.TB, name string) string {
	t.Helper()
	file := map[Language]string{C: name + ".c", Rust: name + ".rs", Go: name + "/main.go", AssemblyScript: name + ".ts"}[l]
	source, err := handlers.ReadFile("guests/handlers/" + file)
	if err != nil {
		t.Fatalf("read handler %s in %s: %v", name, l, err)
	}
	return string(source)
}

// Empty returns a handler that does nothing and completes.
func (l Language) Empty(t testing.TB) []byte {
	t.Helper()
	return l.BuildHandler(t, l.HandlerSource(t, "empty"))
}

// JSON returns a handler that parses its input, an order such as JSONInput. It adds up what the order's lines cost
// (quantity times price) and weigh (quantity times each of the weights) in the members total and weight, and writes the
// order as output. If the input is not JSON, the handler ends with 65. In Go it uses encoding/json, in the other
// languages a small parser that builds a tree.
func (l Language) JSON(t testing.TB) []byte {
	t.Helper()
	return l.BuildHandler(t, l.HandlerSource(t, "json"))
}

// JSONInput returns an order of about 1 KB.
func JSONInput() []byte {
	input, _ := order()
	return input
}

// JSONOutput returns the output of the handler JSON for JSONInput.
func JSONOutput() []byte {
	_, output := order()
	return output
}

func order() (input, output []byte) {
	var lines []string
	total, weight := 0, 0
	for i := range 8 {
		quantity, price, weights := i%4+1, i*335+990, [3]int{i, i + 2, 2*i + 5}
		total += quantity * price
		weight += quantity * (weights[0] + weights[1] + weights[2])
		lines = append(lines, fmt.Sprintf(`{"sku":"SKU-%06d","title":"Widget, %ssmall","quantity":%d,"price":%d,"weights":[%d,%d,%d]}`,
			i*7919, strings.Repeat("very ", i%3), quantity, price, weights[0], weights[1], weights[2]))
	}
	write := func(total, weight int) []byte {
		return fmt.Appendf(nil, `{"id":"9f4e1c52-0c1b-4f7e-9c1c-7a6f2d5a8b10",`+
			`"customer":{"name":"Zoë \"Zed\" Ångström\nGöteborg","email":"zoe@example.org"},`+
			`"lines":[%s],"paid":true,"note":null,"total":%d,"weight":%d}`, strings.Join(lines, ","), total, weight)
	}
	return write(0, 0), write(total, weight)
}
