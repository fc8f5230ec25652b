package bundle

import (
	"encoding/binary"
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
	if !whole(module) {
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

// whole reports whether the last section of a module ends where the file does.
func whole(module []byte) bool {
	const header = 8
	for at := uint64(header); at != uint64(len(module)); {
		if at >= uint64(len(module)) {
			return false
		}
		size, n := binary.Uvarint(module[at+1:])
		if n <= 0 || size > uint64(len(module)) {
			return false
		}
		at += 1 + uint64(n) + size
	}
	return true
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
