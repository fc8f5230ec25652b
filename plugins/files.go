package plugins

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
)

// namedFiles are the files that a manifest names as a scan finds them, in the order of its sources.
type namedFiles struct {
	files []file
	err   error // a *manifest.Error if any of them will not be read
}

// named finds the files that the manifest of a tenant's plugin names; path is the manifest's, for messages.
func (s *scan) named(tenant, path string, m *manifest.Manifest) (n namedFiles) {
	sources := m.Sources()
	if len(sources) == 0 {
		return n
	}
	at, err := s.open(tenant, s.places[tenant])
	if err != nil {
		n.err = fmt.Errorf("%s: open its folder: %w", path, err)
		return n
	}
	defer at.Close()
	var problems []manifest.Problem
	var size int64
	for _, source := range sources {
		f := s.namedFile(at, filepath.FromSlash(source.From), source.Most)
		n.files = append(n.files, f)
		switch {
		case f.problem != nil:
			problems = append(problems, source.Problem(f.problem))
		case source.To != "":
			size += f.fingerprint.info.Size()
		}
	}
	n.err = manifest.NewError(path, append(problems, m.CheckTotal(size)...))
	return n
}

// namedFile follows the path to the regular file of at most that many bytes that it must end in. Nothing is opened.
func (s *scan) namedFile(at place, from string, most int64) (f file) {
	refuse := func(what, remedy string) file {
		return file{exists: true, problem: &manifest.Fault{What: what, Remedy: remedy}}
	}
	end, err := filepath.EvalSymlinks(filepath.Join(at.path, from))
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
	case errors.Is(err, fs.ErrPermission):
		return file{exists: true, problem: err}
	case err != nil:
		return refuse(fmt.Sprintf("the path cannot be followed (%v)", manifest.Cause(err)), "let it end in a regular file in "+s.dir)
	default:
		if _, inside := below(at.path, end); !inside { // a tenant's own folder is all that a tenant may grant from
			return refuse("the link ends outside the folder of the manifest, in "+end, "copy the file into that folder, or link to a file in it")
		}
		f = s.regular(at, end, most)
	}
	if !f.exists {
		return refuse("there is no such file", "put it into the folder of the manifest, or correct the path")
	}
	return f
}

// contents are the files that a version's manifest names.
type contents struct {
	files  *runtime.Files // what is granted; nil for nothing
	warm   []byte         // the warm input; nil for none
	digest string         // of all contents in the order of the sources; "" for none
}

// size is about what they take, in bytes.
func (c *contents) size() int64 {
	size := int64(len(c.warm))
	if c.files != nil {
		size += c.files.Size()
	}
	return size
}

// readNamed reads the files that a manifest names, in the order of its sources, and notes their fingerprints in files. What
// cannot be read is a *manifest.Error, except a file that changes or disappears under the reader, which is to be looked for again.
func readNamed(path string, m *manifest.Manifest, files []file, read func(f file, most int64) (content, error)) (contents, error) {
	if len(files) == 0 {
		return contents{}, nil
	}
	var c contents
	var problems []manifest.Problem
	var sums []byte
	byPath, room := make(map[string][]byte, len(files)), int64(manifest.MaxFiles)
	for i, source := range m.Sources() {
		most := source.Most
		if source.To != "" {
			most = room
		}
		one, err := read(files[i], most)
		switch {
		case isUnstable(err):
			return contents{}, fmt.Errorf("%s: %w", source, err)
		case err != nil:
			problems = append(problems, source.Problem(err))
			continue
		}
		sum := sha256.Sum256(one.data)
		sums = append(sums, sum[:]...)
		files[i].fingerprint = one.fingerprint
		if source.To == "" {
			c.warm = one.data
			continue
		}
		room -= int64(len(one.data))
		byPath[source.To] = one.data
	}
	err := manifest.NewError(path, problems)
	if err != nil {
		return contents{}, err
	}
	if len(byPath) > 0 {
		if c.files, err = runtime.NewFiles(byPath); err != nil {
			return contents{}, fmt.Errorf("%s: capabilities.files: %w", path, err)
		}
	}
	c.digest = runtime.DigestOf(sums)
	return c, nil
}

// scanOf is a scan of the one folder of a file.
func scanOf(path string) (*scan, error) {
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	return &scan{dir: filepath.Dir(path), root: folder, places: map[string]string{"": folder}, folders: map[string]struct{}{}}, err
}

// LoadFiles reads the files that the manifest at path names: those that it grants and its warm input, nil for none. All links
// must end inside the folder of the manifest. Every problem is told at once, as a *manifest.Error.
func LoadFiles(path string, m manifest.Manifest) (granted *runtime.Files, warm []byte, err error) {
	s, err := scanOf(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read files of manifest %q: %w", path, err)
	}
	g := s.named("", path, &m)
	if g.err != nil {
		return nil, nil, g.err
	}
	c, err := readNamed(path, &m, g.files, readSettled)
	return c.files, c.warm, err
}

// readSettled reads a file for somebody who does not come back when it is complete.
func readSettled(f file, most int64) (content, error) {
	read, err := readStable(f.root, f.path, most, f.fingerprint.size(), nil)
	if isUnstable(err) {
		err = &manifest.Fault{What: "it changed while it was read", Remedy: "try again when it is complete"}
	}
	return read, err
}

// LoadFile reads a regular file, from, in the folder of the manifest at path. All links must end inside the folder. Without it
// the error is fs.ErrNotExist or wraps it.
func LoadFile(path, from string, most int64) ([]byte, error) {
	s, err := scanOf(path)
	if err == nil {
		_, err = os.Lstat(filepath.Join(s.root, from))
	}
	if err != nil {
		return nil, err
	}
	at, err := s.open("", s.root)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	f := s.namedFile(at, filepath.FromSlash(from), most)
	if f.problem != nil {
		return nil, f.problem
	}
	read, err := readSettled(f, most)
	return read.data, err
}

// LoadManifest reads the manifest at path, as a host does: a link must end inside its folder. Without one the error wraps
// fs.ErrNotExist, and manifest.Default may be used.
func LoadManifest(path string) (manifest.Manifest, error) {
	s, err := scanOf(path)
	var at place
	if err == nil {
		at, err = s.open("", s.root)
	}
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("read manifest %q: %w", path, err)
	}
	defer at.Close()
	var f file
	info, err := at.Lstat(filepath.Base(path))
	if err == nil {
		f = s.file(at, filepath.Base(path), info.Mode(), manifest.MaxSize)
		err = f.problem
	}
	var read content
	if err == nil {
		read, err = readSettled(f, manifest.MaxSize)
	}
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("read manifest %q: %w", path, err)
	}
	return manifest.Parse(path, read.data)
}
