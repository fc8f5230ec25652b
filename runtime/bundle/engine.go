package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Engine returns the module of the interpreter at path. If there is a folder of the same name next to the module,
// Engine appends a section with the folder's files: python/lib/x next to python.wasm becomes /lib/x. Hosts keep the
// files of this section in memory once for all plugins.
func Engine(path string) ([]byte, error) {
	module, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !walk(module, func(byte, []byte) {}) {
		return nil, fmt.Errorf("%s is truncated or damaged", path)
	}
	files, err := ReadFolder(strings.TrimSuffix(path, ".wasm"), "/")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return module, nil
	case err != nil:
		return nil, err
	}
	return Append(module, files)
}

// ReadFolder returns the contents of the files in a folder. The keys are their paths relative to the folder, joined to
// prefix.
func ReadFolder(folder, prefix string) (map[string][]byte, error) {
	files := map[string][]byte{}
	tree := os.DirFS(folder)
	return files, fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[path.Join(prefix, file)], err = fs.ReadFile(tree, file)
		return err
	})
}
