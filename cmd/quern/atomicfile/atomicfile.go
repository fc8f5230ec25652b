// Package atomicfile writes files that other programs read: these see the old content or the new one, never a part.
package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces a file, unless it has the content already. It makes the folders that it lies in.
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
	defer os.Remove(temporary.Name()) // if the write fails
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Chmod(mode), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
