package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

// What a manifest may grant of files at most.
const (
	maxFiles    = 1000
	maxFileSize = 64 << 20 // bytes of all of them: they are in memory as long as the plugin serves
	maxPath     = 1024     // bytes of one path
	maxName     = 255      // bytes between two slashes of it
)

// checkpoint is the path at which the host gives a guest what an earlier run of its task kept.
const checkpoint = "/checkpoint"

// FileGrant is a file that a plugin's tasks may read. It belongs to the version: it is read when the
// plugin is loaded, and other content makes another version.
type FileGrant struct {
	// From is where it is: a path inside the folder of the manifest, with slashes.
	From string
	// To is where a guest finds it: an absolute and clean path such as /data/model.bin.
	To string

	line int // of the manifest, on which From stands
}

// files reads capabilities.files.
func (d *decoder) files(n node) []FileGrant {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, "is "+kindOf(n), "write a list, such as [{from: model.bin, to: /data/model.bin}]")
		return nil
	}
	if len(n.Content) > maxFiles {
		d.wrong(n, fmt.Sprintf("grants %d files", len(n.Content)), fmt.Sprintf("grant at most %d", maxFiles))
		return nil
	}
	var grants []FileGrant
	places := make(map[string]node, len(n.Content)) // where each To stands
	for i, item := range n.Content {
		grant, at := d.grant(node{resolve(item), fmt.Sprintf("%s[%d]", n.path, i)})
		if first, twice := places[grant.To]; twice {
			d.wrong(at, fmt.Sprintf("%s stands in %s already", quote(grant.To), first.path), "choose another path")
		} else if grant.To != "" {
			places[grant.To] = at
		}
		grants = append(grants, grant)
	}
	for _, grant := range grants {
		if grant.To == "" {
			continue
		}
		for parent := path.Dir(grant.To); parent != "/"; parent = path.Dir(parent) {
			if above, isFile := places[parent]; isFile {
				d.wrong(places[grant.To], fmt.Sprintf("%s is below the file %s of %s", quote(grant.To), quote(parent), above.path), "choose another path")
				break
			}
		}
	}
	return grants
}

// grant reads one entry of capabilities.files; to is the value of its key to.
func (d *decoder) grant(n node) (grant FileGrant, to node) {
	d.entry(n, filesField, func(key string, value node) {
		switch key {
		case "from":
			grant.From, grant.line = d.from(value, "model.bin or models/model.bin"), value.Line
		case "to":
			grant.To, to = d.to(value), value
		}
	})
	if n.Kind == yaml.MappingNode && !has(n, "from") {
		d.wrong(n, "has no from", "write the file's path in the folder of the manifest, such as from: model.bin")
	}
	if n.Kind == yaml.MappingNode && !has(n, "to") {
		d.wrong(n, "has no to", "write where the plugin finds it, such as to: /data/model.bin")
	}
	return grant, to
}

// warm reads the section of that name.
func (d *decoder) warm(n node, m *Manifest) {
	d.section(n, m)
	if _, has := d.values[warmField]; !has && n.Kind == yaml.MappingNode {
		d.wrong(n, "has no input", "write the path of a file with an input to warm the handler with, such as input: sample.json")
	}
}

// from reads the path of a file that is read with the manifest.
func (d *decoder) from(n node, example string) string {
	remedy := "write one without . and .. between its slashes, such as " + example
	value, ok := d.text(n, remedy[len("write "):])
	if ok && !isPath(value) {
		d.wrong(n, quote(value)+" is not a path inside the folder of the manifest", remedy)
		return ""
	}
	return value
}

func (d *decoder) to(n node) string {
	const remedy = "write one without . and .. between its slashes, such as /data/model.bin"
	value, ok := d.text(n, remedy[len("write "):])
	if !ok {
		return ""
	}
	switch name, absolute := strings.CutPrefix(value, "/"); {
	case !absolute || !isPath(name):
		d.wrong(n, quote(value)+" is not an absolute and clean path", remedy)
	case value == checkpoint || strings.HasPrefix(value, checkpoint+"/"):
		d.wrong(n, quote(checkpoint)+" is where the host puts the checkpoint of a task", "choose another path, such as /data"+shorten(value))
	default:
		return value
	}
	return ""
}

// isPath tells a clean relative path.
func isPath(text string) bool {
	long := func(name string) bool { return len(name) > maxName }
	return fs.ValidPath(text) && text != "." && len(text) <= maxPath && !slices.ContainsFunc(strings.Split(text, "/"), long) &&
		!strings.ContainsFunc(text, unicode.IsControl)
}

// source is a file that a manifest names, which is read with it.
type source struct {
	from  string
	field string // that names it
	line  int
	to    string // where tasks find it; "" for the warm input
}

// sources are the files that a manifest names: those that it grants, in its order, and then its warm input. A
// version's FilesDigest is of their contents.
func (m Manifest) sources() []source {
	var all []source
	for i, grant := range m.Capabilities.Files {
		all = append(all, source{grant.From, fmt.Sprintf("%s[%d].from", filesField, i), grant.line, grant.To})
	}
	if m.Warm.Input != "" {
		all = append(all, source{from: m.Warm.Input, field: warmField, line: m.Warm.line})
	}
	return all
}

// grants are the files that a manifest names as a look finds them, in the order of its sources.
type grants struct {
	files []file
	err   error // a *ManifestError if any of them will not be read
}

// granted finds the files that a manifest names. folder is that of the manifest, all links followed,
// and manifest the path of the manifest as it is told to people.
func (s *survey) granted(folder, manifest string, m Manifest) grants {
	var g grants
	var problems []Problem
	var size int64
	for _, wanted := range m.sources() {
		most := int64(maxFileSize)
		if wanted.to == "" {
			most = m.Limits.WithDefaults().Input
		}
		f := s.grantedFile(folder, filepath.FromSlash(wanted.from), most)
		g.files = append(g.files, f)
		switch {
		case f.problem != nil:
			problems = append(problems, wanted.problem(f.problem))
		case wanted.to != "":
			size += f.stamp.info.Size()
		}
	}
	if size > maxFileSize {
		problems = append(problems, Problem{
			Line: m.Capabilities.Files[0].line, Field: filesField,
			What:   "the files have " + units.FormatSize(size) + " together",
			Remedy: "grant at most " + units.FormatSize(maxFileSize),
		})
	}
	g.err = manifestError(manifest, problems)
	return g
}

const (
	filesField = "capabilities.files"
	warmField  = "warm.input"
)

// problem is what is wrong with the file.
func (s source) problem(err error) Problem {
	p := Problem{
		Line: s.line, Field: s.field,
		What: quote(s.from) + " cannot be read: " + cause(err).Error(), Remedy: "let the host's user read it",
	}
	var known *fault
	if errors.As(err, &known) {
		p.What, p.Remedy = quote(s.from)+": "+known.what, known.remedy
	}
	if s.to == "" && p.Remedy == makeSmaller { // its bound is the plugin's own
		p.Remedy += ", or raise limits.input"
	}
	return p
}

// grantedFile follows the path to the regular file of at most so many bytes that it must end in. Nothing is opened.
func (s *survey) grantedFile(folder, from string, most int64) file {
	end, err := filepath.EvalSymlinks(filepath.Join(folder, from))
	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(end)
	}
	inside := err == nil
	if inside {
		below, err := filepath.Rel(folder, end)
		inside = err == nil && filepath.IsLocal(below)
	}
	switch {
	case err == nil && !inside: // a tenant's own folder is all that a tenant may grant from
		return file{exists: true, problem: &fault{
			"the link ends outside the folder of the manifest, in " + end, "copy the file into that folder, or link to a file in it",
		}}
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return file{exists: true, problem: &fault{"there is no such file", "put it into the folder of the manifest, or correct the path"}}
	case errors.Is(err, fs.ErrPermission):
		return file{exists: true, problem: err}
	case err != nil:
		return file{exists: true, problem: &fault{
			fmt.Sprintf("the path cannot be followed (%v)", cause(err)), "let it end in a regular file in " + s.dir,
		}}
	}
	return s.regular(end, info, most)
}

// contents are the files that a version's manifest names.
type contents struct {
	files  *runtime.Files // what is granted; nil for nothing
	warm   []byte         // the warm input; nil for none
	digest string         // of all contents in the order of the sources; "" for none
	stamps []stamp
}

// readGranted reads the files that a manifest names, in the order of its sources. What cannot be read is a
// *ManifestError, but for a file that changes or disappears under the reader, which is looked for again.
func readGranted(manifest string, m Manifest, files []file, read func(f file, most int64) (content, error)) (contents, error) {
	if len(files) == 0 {
		return contents{}, nil
	}
	var c contents
	var problems []Problem
	byPath, digest := make(map[string][]byte, len(files)), sha256.New()
	room := int64(maxFileSize)
	for i, wanted := range m.sources() {
		most := room
		if wanted.to == "" {
			most = m.Limits.WithDefaults().Input
		}
		one, err := read(files[i], most)
		switch {
		case errors.Is(err, errUnstable) || errors.Is(err, fs.ErrNotExist):
			return contents{}, fmt.Errorf("%s of %s: %w", quote(wanted.from), wanted.field, err)
		case err != nil:
			problems = append(problems, wanted.problem(err))
			continue
		}
		sum := sha256.Sum256(one.data)
		digest.Write(sum[:])
		c.stamps = append(c.stamps, one.stamp)
		if wanted.to == "" {
			c.warm = one.data
			continue
		}
		room -= int64(len(one.data))
		byPath[wanted.to] = one.data
	}
	if err := manifestError(manifest, problems); err != nil {
		return contents{}, err
	}
	if len(byPath) > 0 {
		var err error
		if c.files, err = runtime.NewFiles(byPath); err != nil {
			return contents{}, fmt.Errorf("%s: %s: %w", manifest, filesField, err)
		}
	}
	c.digest = "sha256:" + hex.EncodeToString(digest.Sum(nil))
	return c, nil
}

// LoadFiles reads the files that the manifest at path names: those that it grants, nil if there are none, and its
// warm input, nil if there is none. All links must end inside the folder of the manifest. Every problem is told at
// once, as a *ManifestError.
func LoadFiles(path string, m Manifest) (granted *runtime.Files, warm []byte, err error) {
	if len(m.sources()) == 0 {
		return nil, nil, nil
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read files of manifest %q: %w", path, err)
	}
	s := &survey{dir: filepath.Dir(path), root: folder, folders: map[string]struct{}{}}
	g := s.granted(folder, path, m)
	if g.err != nil {
		return nil, nil, g.err
	}
	c, err := readGranted(path, m, g.files, func(f file, most int64) (content, error) {
		read, err := readStable(folder, f.path, most)
		if errors.Is(err, errUnstable) || errors.Is(err, fs.ErrNotExist) {
			err = &fault{"it changed while it was read", "try again when it is complete"}
		}
		return read, err
	})
	return c.files, c.warm, err
}

// stampsOf are those of files as a look found them.
func stampsOf(files []file) []stamp {
	stamps := make([]stamp, len(files))
	for i, f := range files {
		stamps[i] = f.stamp
	}
	return stamps
}
