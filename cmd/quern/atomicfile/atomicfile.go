// Package atomicfile writes files atomically: a program that reads one sees its old content or its new content, never a
// part.
package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the content of a file, unless the file has that content already. It makes missing parent folders.
func Write(path string, content []byte, mode fs.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".*-"+filepath.Base(path))
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // left only if the write fails
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Chmod(mode), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
