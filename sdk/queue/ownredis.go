package queue

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// foundURL returns the URL of Redis for a program that names none: QUERN_REDIS_URL, or else that of the `quern dev`
// that this user runs. Unlike the command line, it does not guess further: a program must not enqueue to a Redis that
// nobody chose.
func foundURL() (string, error) {
	if url := os.Getenv("QUERN_REDIS_URL"); url != "" {
		return url, nil
	}
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) {
		dir = os.Getenv("XDG_CACHE_HOME")
	}
	if !filepath.IsAbs(dir) {
		dir, _ = os.UserCacheDir() // an error leaves "": no file is there
	}
	path := filepath.Join(dir, "quern", "dev.json")
	var dev struct{ Redis string }
	// As the command line does, read only a regular file: a pipe could block for ever.
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		if content, err := os.ReadFile(path); err == nil && json.Unmarshal(content, &dev) == nil && dev.Redis != "" {
			return dev.Redis, nil
		}
	}
	return "", fmt.Errorf("%w: Redis URL: it is empty, and no `quern dev` runs here: "+
		"write redis://127.0.0.1:6379/0, or set QUERN_REDIS_URL", ErrInvalid)
}
