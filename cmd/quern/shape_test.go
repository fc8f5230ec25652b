package main_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The largest that an interface, a type and a package may be.
const (
	maxInterface = 9   // methods of its own, beside those of interfaces in it
	maxType      = 40  // methods
	maxPackage   = 150 // exported names
)

// oversized are the interfaces, types and packages above these bounds, with their sizes. They may only shrink.
var oversized = map[string]int{
	"host/api/client.Client":        55, // the methods of admin.Tenant
	"sdk/internal/native.Host":      26, // the functions of the ABI
	"sdk/queue/internal/store.Keys": 78, // a key each
}

// maxBack bounds, for each folder, the references back of its packages: see referencesBack.
var maxBack = map[string]int{"cmd/quern": 25}

// TestShape bounds what one has to know of a package, and how its files depend on each other.
func TestShape(t *testing.T) {
	t.Parallel()
	sizes, back := map[string]int{}, map[string]int{}
	for path, p := range typed(t) {
		names := 0
		for _, name := range p.pkg.Scope().Names() {
			object := p.pkg.Scope().Lookup(name)
			if object.Exported() {
				names++
			}
			named, ok := object.Type().(*types.Named)
			if _, isType := object.(*types.TypeName); !isType || !ok {
				continue
			}
			if i, ok := named.Underlying().(*types.Interface); ok && i.NumExplicitMethods() > maxInterface {
				sizes[path+"."+name] = i.NumExplicitMethods()
			} else if n := exportedMethods(named); n > maxType {
				sizes[path+"."+name] = n
			}
		}
		if names > maxPackage {
			sizes[path] = names
		}
		for folder := range maxBack {
			if path == folder || strings.HasPrefix(path, folder+"/") {
				n, which := referencesBack(p)
				if back[folder] += n; n > 0 {
					t.Logf("%s: %d references back: %s", path, n, which)
				}
			}
		}
	}
	for name, size := range sizes {
		if size > oversized[name] {
			t.Errorf("%s has %d methods or exported names: at most %d methods of an interface, %d of a type, %d names of a package; cut it",
				name, size, maxInterface, maxType, maxPackage)
		}
	}
	for name, size := range oversized {
		if sizes[name] < size {
			t.Errorf("%s has shrunk: write %d for %d in the table oversized, or remove it if that is 0", name, sizes[name], size)
		}
	}
	for folder, n := range back {
		if n > maxBack[folder] {
			t.Errorf("the packages of %s have %d references back, more than %d: move a declaration to the file below that needs it", folder, n, maxBack[folder])
		}
	}
}

// exportedMethods counts what users of a type may call, without what it embeds.
func exportedMethods(of *types.Named) (n int) {
	for method := range of.Methods() {
		if method.Exported() {
			n++
		}
	}
	return n
}

// checked is a package with its types.
type checked struct {
	pkg   *types.Package
	info  *types.Info
	set   *token.FileSet
	files []*ast.File
}

// typed checks the types of all packages of this module, by their folders.
func typed(t *testing.T) map[string]checked {
	t.Helper()
	exports, all := map[string]string{}, map[string]checked{}
	packages := list(t, "", "", "-export", "-deps", "./...")
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	set := token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	for _, p := range packages {
		if !strings.HasPrefix(p.ImportPath, module+"/") || p.forTests() {
			continue
		}
		c := checked{set: set, info: &types.Info{Uses: map[*ast.Ident]types.Object{}}}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(set, filepath.Join(root(t), p.rel(), name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			c.files = append(c.files, file)
		}
		var err error
		if c.pkg, err = config.Check(p.ImportPath, set, c.files, c.info); err != nil {
			t.Fatal(err)
		}
		all[p.rel()] = c
	}
	return all
}

// referencesBack counts the references of a package's files against their best order: one in which each file uses what the files
// before it declare. A reference is a file's use of a declaration, however often. The order is that of a local search.
func referencesBack(p checked) (count int, which []string) {
	uses := map[[2]string]map[types.Object]bool{}
	var files []string
	for _, file := range p.files {
		user := filepath.Base(p.set.Position(file.Pos()).Filename)
		files = append(files, user)
		ast.Inspect(file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || p.info.Uses[id] == nil {
				return true
			}
			object := p.info.Uses[id]
			f, isFunc := object.(*types.Func)
			if isFunc {
				object = f.Origin()
			}
			declared := filepath.Base(p.set.Position(object.Pos()).Filename)
			if edge := [2]string{user, declared}; object.Pkg() == p.pkg && user != declared && (isFunc || object.Parent() == p.pkg.Scope()) {
				if uses[edge] == nil {
					uses[edge] = map[types.Object]bool{}
				}
				uses[edge][object] = true
			}
			return true
		})
	}
	for better := true; better; {
		better = false
		for i := range files {
			file := files[i]
			others := slices.Delete(slices.Clone(files), i, i+1)
			cost, best, at := 0, 0, 0 // relative to the first place
			place := 0
			for j, other := range others {
				cost += len(uses[[2]string{other, file}]) - len(uses[[2]string{file, other}])
				if j+1 == i {
					place = cost
				}
				if cost < best {
					best, at = cost, j+1
				}
			}
			if best < place {
				files, better = slices.Insert(others, at, file), true
			}
		}
	}
	for i, file := range files {
		for _, later := range files[i+1:] {
			for object := range uses[[2]string{file, later}] {
				which = append(which, fmt.Sprintf("%s uses %s of %s", file, object.Name(), later))
			}
		}
	}
	slices.Sort(which)
	return len(which), which
}
