// Package bundle reads and writes the files that a plugin carries in its own module: the sources of a handler in
// Python or JavaScript, its dependencies, and the library of the interpreter.
//
//	NAME.wasm   the engine's module  ┊ custom section quern.files   the engine's own files
//	                                 ┊ custom section quern.files   the handler's files
//
// Each section is a tar archive, which can be compressed with zstd. Guests see the files of all sections, read-only, at
// their paths from the root. sdk/ABI.md specifies the format.
//
// # Failure
//
// Archives come from tenants who are not trusted. Before Read keeps a file, it checks the number of files and
// directories, the length of the path and the number of bytes against their limits. It accepts only regular files and
// directories. If it refuses an entry, it returns an [Error] with the entry's path.
package bundle

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Section is the name of the custom sections that hold files.
const Section = "quern.files"

// MaxBytes is the maximum memory that a module's files take, in bytes: contents, paths and directories. The files stay
// in memory as long as the module.
const MaxBytes = 64 << 20

// MaxEntries is the maximum number of files and directories in one section. MaxPath is the maximum length of a path, in
// bytes.
const (
	MaxEntries = 20_000
	MaxPath    = 1024
)

// maxWindow is the maximum window of a zstd decoder, in bytes. It is the window size that every decoder must support
// (RFC 8878, section 3.1.1.1.2).
const maxWindow = 8 << 20

// zstdMagic begins a zstd frame (RFC 8878, section 3.1.1).
var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// entrySize is roughly the memory that a file takes while an archive is read, in bytes, without its contents and path.
const entrySize = 256

// ErrNoRoom means that there is no memory for the files now.
var ErrNoRoom = errors.New("no memory is left for the files")

// Error says which entry of an archive is refused, and why.
type Error struct {
	// Path is the entry's path in the archive; "" if the archive itself is damaged.
	Path string
	// Reason says what is wrong. Remedy says what to do about it.
	Reason, Remedy string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("the section %s: %s; %s", Section, e.Reason, e.Remedy)
	}
	return fmt.Sprintf("the section %s: %q: %s; %s", Section, e.Path, e.Reason, e.Remedy)
}

// Sections returns the contents of the sections that hold files in a valid module, as slices of the module.
func Sections(module []byte) (sections [][]byte) {
	walk(module, func(id byte, section []byte) {
		if id == 0 {
			length, n := binary.Uvarint(section)
			if name := section[n:][:length]; string(name) == Section {
				sections = append(sections, section[n+len(name):])
			}
		}
	})
	return sections
}

// walk calls f for each section of a module, and reports whether the last section ends at the end of the module.
func walk(module []byte, f func(id byte, section []byte)) bool {
	const header = 8
	if len(module) < header {
		return false
	}
	for rest := module[header:]; len(rest) > 0; {
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || size > uint64(len(rest)-1-n) {
			return false
		}
		section := rest[1+n:][:size]
		f(rest[0], section)
		rest = rest[1+n+len(section):]
	}
	return true
}

// Read returns the contents of the files in a section by absolute path. All contents together can have at most limit
// bytes. Before Read allocates memory for a file, it calls reserve with the number of bytes. A nil reserve allows any
// number. The error is an *Error, or ErrNoRoom if reserve returns false.
func Read(section []byte, limit int64, reserve func(bytes int64) bool) (map[string][]byte, error) {
	archive := io.Reader(bytes.NewReader(section))
	if bytes.HasPrefix(section, zstdMagic) {
		decoder, err := zstd.NewReader(archive, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, damaged(err)
		}
		defer decoder.Close()
		archive = decoder
	}
	// An archive is larger than its files: each entry has about 1 KiB of headers and padding, more if its name is long.
	bounded := &io.LimitedReader{R: archive, N: limit + MaxEntries*4<<10}
	files, folders := map[string][]byte{}, map[string]bool{}
	for entries := tar.NewReader(bounded); ; {
		header, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return files, nil
		case err != nil && bounded.N == 0:
			return nil, tooLarge("", limit)
		case err != nil:
			return nil, damaged(err)
		case header.Typeflag == tar.TypeDir:
			continue // the paths of files imply their directories
		case header.Typeflag != tar.TypeReg:
			return nil, &Error{header.Name, "it is not a regular file", "put the file itself there; links do not work in guests"}
		case isSparse(header):
			return nil, &Error{header.Name, "it is a sparse file", "pack it without --sparse"}
		case len(header.Name) > MaxPath:
			return nil, &Error{
				header.Name, fmt.Sprintf("its path has %d bytes, more than %d", len(header.Name), MaxPath),
				"give it a shorter one",
			}
		case header.Size > limit:
			return nil, tooLarge(header.Name, limit)
		}
		name := path.Clean("/" + header.Name)
		if _, twice := files[name]; twice {
			return nil, &Error{header.Name, "it is there twice", "leave one out"}
		}
		for dir := path.Dir(name); dir != "/" && !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
		if len(files)+len(folders) >= MaxEntries {
			return nil, &Error{
				header.Name, fmt.Sprintf("with it there are more than %d files and directories", MaxEntries),
				"leave out what tasks do not read",
			}
		}
		if reserve != nil && !reserve(header.Size+int64(len(name))+entrySize) {
			return nil, ErrNoRoom
		}
		contents := make([]byte, header.Size)
		if _, err := io.ReadFull(entries, contents); err != nil {
			return nil, damaged(err)
		}
		limit -= header.Size
		files[name] = contents
	}
}

// isSparse reports whether a regular file has holes. Read refuses sparse files, because a header of some hundred bytes
// can stand for any number of zeros. Files in GNU's old sparse format have a different type, so Read refuses them
// anyway.
func isSparse(header *tar.Header) bool {
	for record := range header.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func tooLarge(name string, limit int64) *Error {
	return &Error{
		name, fmt.Sprintf("no more than %d bytes are left of what a plugin's files may take together", limit),
		"leave out what tasks do not read",
	}
}

func damaged(err error) *Error {
	return &Error{"", fmt.Sprintf("the archive is damaged (%v)", err), "build the plugin again"}
}

// Append returns the module with one more section, which holds files. The keys of files are absolute paths. Equal files
// give equal bytes.
func Append(module []byte, files map[string][]byte) ([]byte, error) {
	var compressed bytes.Buffer
	encoder, err := zstd.NewWriter(&compressed, zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(maxWindow))
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(encoder)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: name[1:], Mode: 0o444, Size: int64(len(files[name])), Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %q: %w", name, err)
		}
		if _, err := archive.Write(files[name]); err != nil {
			return nil, fmt.Errorf("pack %q: %w", name, err)
		}
	}
	if err := errors.Join(archive.Close(), encoder.Close()); err != nil {
		return nil, err
	}
	payload := append(binary.AppendUvarint(nil, uint64(len(Section))), Section...)
	payload = append(payload, compressed.Bytes()...)
	out := append(slices.Clip(module), 0) // the ID of custom sections
	out = binary.AppendUvarint(out, uint64(len(payload)))
	return append(out, payload...), nil
}
