package runtime

import (
	"crypto/sha256"
	"errors"
	"sync"
	"weak"

	"github.com/quern-project/quern/runtime/bundle"
)

// maxBundle bounds the files that a module carries, in bytes: they are in memory as long as the module is.
const maxBundle = 64 << 20

// bundles keeps the files that modules carry, each section once: the library of an interpreter is in every plugin for it.
type bundles struct {
	mu     sync.Mutex
	shared map[[sha256.Size]byte]weak.Pointer[Files] // by the section's SHA-256
}

// read returns the files of each section of a valid module. An error is a *RefusedError.
func (b *bundles) read(binary []byte) (all []*Files, err error) {
	room := int64(maxBundle)
	for _, section := range bundle.Sections(binary) {
		files, err := b.section(section, room)
		if err != nil {
			return nil, err
		}
		if room -= files.Size(); room < 0 {
			return nil, refuse("the files that the module carries take more than 64MiB", "section "+bundle.Section, "leave out what tasks do not read")
		}
		all = append(all, files)
	}
	return all, nil
}

func (b *bundles) section(section []byte, room int64) (*Files, error) {
	key := sha256.Sum256(section)
	b.mu.Lock()
	defer b.mu.Unlock()
	if files := b.shared[key].Value(); files != nil {
		return files, nil
	}
	contents, err := bundle.Read(section, room)
	if damaged, ok := errors.AsType[*bundle.Error](err); ok {
		what := damaged.Reason
		if damaged.Path != "" {
			what = label(damaged.Path) + ": " + what
		}
		return nil, refuse(what, "section "+bundle.Section, damaged.Remedy)
	}
	files, err := NewFiles(contents)
	if err != nil {
		return nil, refuse(label(err.Error()), "section "+bundle.Section, "build the plugin again")
	}
	for key, files := range b.shared {
		if files.Value() == nil {
			delete(b.shared, key)
		}
	}
	b.shared[key] = weak.Make(files)
	return files, nil
}
