package runtime

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"sync"
	"weak"

	"github.com/quern-project/quern/runtime/bundle"
	"github.com/quern-project/quern/runtime/redact"
)

// maxSections is the maximum number of sections in which a module can carry files.
const maxSections = 8

// bundles holds the files that modules carry, and keeps equal sections only once. For example, every plugin for an
// interpreter carries the interpreter's library.
type bundles struct {
	mu     sync.Mutex
	shared map[[sha256.Size]byte]weak.Pointer[Files] // files by the SHA-256 of their section; guarded by mu
}

// read returns the files of each section of a valid module. Before it unpacks files that no other module shares, it
// calls reserve with the bytes that they take. The error is a *RefusedError, or wraps bundle.ErrNoRoom.
func (b *bundles) read(binary []byte, reserve func(bytes int64) bool) (all []*Files, err error) {
	room, sections := int64(bundle.MaxBytes), bundle.Sections(binary)
	if len(sections) > maxSections {
		return nil, refuse(fmt.Sprintf("%d sections of files, more than %d", len(sections), maxSections),
			"section "+bundle.Section, "put the files into one section")
	}
	for _, section := range sections {
		files, err := b.section(section, room, reserve)
		if err != nil {
			return nil, err
		}
		if room -= files.Size(); room < 0 {
			return nil, refuse("the files that the module carries take more than 64MiB", "section "+bundle.Section,
				"leave out what tasks do not read")
		}
		all = append(all, files)
	}
	return all, nil
}

func (b *bundles) section(section []byte, room int64, reserve func(bytes int64) bool) (*Files, error) {
	key := sha256.Sum256(section)
	if files := b.share(key, nil); files != nil {
		return files, nil
	}
	contents, err := bundle.Read(section, room, reserve)
	if errors.Is(err, bundle.ErrNoRoom) {
		return nil, err
	}
	if damaged, ok := errors.AsType[*bundle.Error](err); ok {
		what := damaged.Reason
		if damaged.Path != "" {
			what = redact.Label(damaged.Path) + ": " + what
		}
		return nil, refuse(what, "section "+bundle.Section, damaged.Remedy)
	}
	files, err := NewFiles(contents)
	if err != nil {
		return nil, refuse(redact.Label(err.Error()), "section "+bundle.Section, "build the plugin again")
	}
	return b.share(key, files), nil
}

// share returns the files that are stored under key. If there are none and files is not nil, it stores files under key
// and returns them.
func (b *bundles) share(key [sha256.Size]byte, files *Files) *Files {
	b.mu.Lock()
	defer b.mu.Unlock()
	if shared := b.shared[key].Value(); shared != nil || files == nil {
		return shared
	}
	maps.DeleteFunc(b.shared, func(_ [sha256.Size]byte, files weak.Pointer[Files]) bool { return files.Value() == nil })
	b.shared[key] = weak.Make(files)
	return files
}
