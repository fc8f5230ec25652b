package conformance_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// services are the rows of the table "for" in a README: what there is for what, by which names, and what the manifest grants.
func services(t *testing.T, language string) (rows [][3]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", language, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| for | | the manifest grants |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, ""), "|")
		if len(cells) != 5 {
			t.Fatalf("%s: %d cells in %q", language, len(cells)-2, line)
		}
		rows = append(rows, [3]string{strings.TrimSpace(cells[1]), cells[2], strings.TrimSpace(cells[3])})
	}
	return rows
}

// TestServices: the READMEs list the same services in the same order, under the same capabilities. Some languages have more.
func TestServices(t *testing.T) {
	t.Parallel()
	want := services(t, "")
	if len(want) < 13 {
		t.Fatalf("the README of Go lists %d services", len(want))
	}
	for _, language := range []string{"python", "javascript", "rust", "assemblyscript"} {
		rows := services(t, language)
		for i, row := range want {
			grants := strings.TrimSuffix(row[2], "; `capabilities.env`") // not in all languages
			if i >= len(rows) || rows[i][0] != row[0] || strings.TrimSuffix(rows[i][2], "; `capabilities.env`") != grants {
				t.Errorf("%s has not %q with %q as row %d", language, row[0], row[2], i)
				break
			}
		}
	}
}

// TestServicesOfGo: the names that the README of Go lists are those of the packages.
func TestServicesOfGo(t *testing.T) {
	t.Parallel()
	var names []string
	for _, dir := range []string{"..", "../fetch", "../typed"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					names = append(names, n.Name.Name)
				case *ast.TypeSpec:
					names = append(names, n.Name.Name)
				case *ast.ValueSpec, *ast.Field:
					for _, name := range idents(n) {
						names = append(names, name.Name)
					}
				}
				return true
			})
		}
	}
	others := []string{"Fprintln", "Stderr", "Getenv"} // of the standard library
	code, exported := regexp.MustCompile("`[^`]+`"), regexp.MustCompile(`\b[A-Z]\w*`)
	checked := 0
	for _, row := range services(t, "") {
		for _, span := range code.FindAllString(row[1], -1) {
			for _, name := range exported.FindAllString(span, -1) {
				if checked++; !slices.Contains(names, name) && !slices.Contains(others, name) {
					t.Errorf("%s: the SDK has no %s", row[0], name)
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d names are checked", checked)
	}
}

// idents are the names that a specification of values or a field declares.
func idents(n ast.Node) []*ast.Ident {
	if spec, ok := n.(*ast.ValueSpec); ok {
		return spec.Names
	}
	return n.(*ast.Field).Names
}
