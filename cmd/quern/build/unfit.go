package build

import (
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// without are functions and types of Go's standard library that compile for a plugin but cannot work in one, by
// package, and what to use instead.
var without = map[string]struct {
	names   []string
	instead string
}{
	"net": {
		[]string{"Dial", "DialTimeout", "Dialer", "Listen", "ListenPacket", "LookupHost", "LookupIP"},
		"a plugin has no sockets: send HTTP requests by " + sdkFetch,
	},
	"net/http": {
		[]string{
			"Get", "Post", "PostForm", "Head", "Client", "DefaultClient", "DefaultTransport", "Transport",
			"ListenAndServe", "ListenAndServeTLS", "Server",
		},
		"a plugin has no sockets: send requests by " + sdkFetch,
	},
	"database/sql": {
		[]string{"Open", "OpenDB"},
		"a plugin has no sockets: use sdk.Bucket, or an HTTP API of the database by " + sdkFetch,
	},
	"os/exec": {
		[]string{"Command", "CommandContext"},
		"a plugin starts no processes: do it in Go, or in a worker outside of plugins",
	},
}

const sdkFetch = "github.com/quern-project/quern/sdk/fetch"

// unfit returns warnings of functions that cannot work in a plugin: of each package the first use in each file. Files
// that are not part of the plugin, and those that do not compile, have none.
func unfit(s *Source, texts [][]byte) (warnings []string) {
	target := gobuild.Default
	target.GOOS, target.GOARCH = "wasip1", "wasm"
	for i, name := range s.Files {
		if part, err := target.MatchFile(s.Dir, name); err != nil || !part {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Base(name), texts[i], parser.SkipObjectResolution)
		if err != nil {
			continue // the compiler reports it
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if _, known := without[path]; err != nil || !known {
				continue
			}
			local := path[strings.LastIndexByte(path, '/')+1:]
			if spec.Name != nil {
				local = spec.Name.Name
			}
			if use := firstUse(file, local, without[path].names); use != nil {
				warnings = append(warnings, fmt.Sprintf("%s: warning: %s.%s does not work here: %s",
					files.Position(use.Pos()), local, use.Sel.Name, without[path].instead))
			}
		}
	}
	return warnings
}

// firstUse returns the first selector of one of the names in a package, nil if there is none.
func firstUse(file *ast.File, local string, names []string) (use *ast.SelectorExpr) {
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && use == nil && slices.Contains(names, s.Sel.Name) {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
				use = s
			}
		}
		return use == nil
	})
	return use
}
