package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Engine returns the module of the interpreter at path. If there is a folder of the same name beside it, the folder's
// files are in a section of the module, which hosts keep once for all plugins: python/lib/x beside python.wasm
// becomes /lib/x.
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

// ReadFolder reads the files of a folder. Their paths in the result begin with below in place of the folder.
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
