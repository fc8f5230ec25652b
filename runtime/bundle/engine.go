package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Engine returns the interpreter at a path, with the files of the folder beside it, if there is one, in a section of their own,
// which hosts keep once for all plugins: of python.wasm the file python/lib/x becomes /lib/x.
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

// ReadFolder reads the files of a folder, by their paths below another one.
func ReadFolder(folder, below string) (map[string][]byte, error) {
	files := map[string][]byte{}
	tree := os.DirFS(folder)
	return files, fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[path.Join(below, file)], err = fs.ReadFile(tree, file)
		return err
	})
}
