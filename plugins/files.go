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

// namedFiles are the files that a manifest names, as a scan found them, in the order of Manifest.Sources.
type namedFiles struct {
	files []file
	err   error // why files will not be read: a *manifest.Error, unless their folder cannot be opened
}

// named finds the files that the manifest of a tenant's plugin names. path is the manifest's path, for messages.
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

// namedFile follows the links of path, which is relative to the folder at, to a regular file of at most limit bytes. It
// opens no file.
func (s *scan) namedFile(at place, path string, limit int64) (f file) {
	refuse := func(what, remedy string) file {
		return file{exists: true, problem: &manifest.Fault{What: what, Remedy: remedy}}
	}
	end, err := filepath.EvalSymlinks(filepath.Join(at.path, path))
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
	case errors.Is(err, fs.ErrPermission):
		return file{exists: true, problem: err}
	case err != nil:
		return refuse(fmt.Sprintf("the path cannot be followed (%v)", manifest.Cause(err)),
			"let it end in a regular file in "+s.dir)
	default:
		if _, inside := below(at.path, end); !inside { // a tenant can grant only files of its own folder
			return refuse("the link ends outside the folder of the manifest, in "+end,
				"copy the file into that folder, or link to a file in it")
		}
		f = s.regular(at, end, limit)
	}
	if !f.exists {
		return refuse("there is no such file", "put it into the folder of the manifest, or correct the path")
	}
	return f
}

// contents are the files that a version's manifest names.
type contents struct {
	files  *runtime.Files // the granted files; nil for none
	warm   []byte         // the warm input; nil for none
	digest string         // the digest of all files, in the order of Manifest.Sources; "" if there are none
}

// size returns about how much memory the contents take, in bytes.
func (c *contents) size() int64 {
	size := int64(len(c.warm))
	if c.files != nil {
		size += c.files.Size()
	}
	return size
}

// readNamed reads the files that a manifest names, in the order of Manifest.Sources, and stores their fingerprints in
// files. It returns a *manifest.Error if files cannot be read. If a file changes or disappears while it is read,
// isUnstable is true for the error, and a later scan must look for the file again.
func readNamed(path string, m *manifest.Manifest, files []file,
	read func(f file, most int64) (content, error),
) (contents, error) {
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

// scanOf returns a scan that looks up files in the folder of the file at path. It lists nothing.
func scanOf(path string) (*scan, error) {
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	return &scan{
		dir: filepath.Dir(path), root: folder, places: map[string]string{"": folder},
		folders: map[string]struct{}{},
	}, err
}

// LoadFiles reads the files that the manifest at path names: the granted files and the warm input, each nil if the
// manifest names none. All links must end inside the folder of the manifest. A *manifest.Error lists all problems of
// the files.
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

// readSettled reads a file for a caller that does not try again. If the file changes meanwhile, the error says to
// try again.
func readSettled(f file, limit int64) (content, error) {
	read, err := readStable(f.root, f.path, limit, f.fingerprint.size(), nil)
	if isUnstable(err) {
		err = &manifest.Fault{What: "it changed while it was read", Remedy: "try again when it is complete"}
	}
	return read, err
}

// LoadFile reads the regular file at from, which is relative to the folder of the manifest at path. All links must end
// inside that folder, and the file must not have more than limit bytes. If there is no such file, the error wraps
// fs.ErrNotExist.
func LoadFile(path, from string, limit int64) ([]byte, error) {
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
	f := s.namedFile(at, filepath.FromSlash(from), limit)
	if f.problem != nil {
		return nil, f.problem
	}
	read, err := readSettled(f, limit)
	return read.data, err
}

// LoadManifest reads the manifest at path as a host does: a link must end inside the manifest's folder. If there is no
// manifest, the error wraps fs.ErrNotExist, and the caller can use manifest.Default.
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
