package bundle_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime/bundle"
)

// header begins every module.
var header = []byte("\x00asm\x01\x00\x00\x00")

// payload is what follows the section's name.
func payload(t *testing.T, module []byte) []byte {
	t.Helper()
	_, after, found := bytes.Cut(module, []byte(bundle.Section))
	if !found {
		t.Fatalf("no section in %q", module)
	}
	return after
}

func TestAppend(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		files := rapid.MapOf(
			rapid.StringMatching(`(/[a-zé_.-]{1,120}){1,3}`).Filter(func(s string) bool { return !strings.Contains(s, "/.") }),
			rapid.SliceOfN(rapid.Byte(), 0, 3000),
		).Draw(r, "files")
		module, err := bundle.Append(header, files)
		if err != nil {
			r.Fatal(err)
		}
		again, err := bundle.Append(header, maps.Clone(files))
		if err != nil || !bytes.Equal(module, again) {
			r.Fatalf("equal files gave other bytes (%v)", err)
		}
		got, err := bundle.Read(payload(t, module), 1<<20, nil)
		if err != nil || !maps.EqualFunc(got, files, slices.Equal) {
			r.Fatalf("got %d files and %v, want %d", len(got), err, len(files))
		}
	})
}

// archive is a tar archive of these entries; those that are no directory have contents.
func archive(t *testing.T, contents string, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, entry := range entries {
		if entry.Typeflag == tar.TypeReg {
			entry.Size = int64(len(contents))
		}
		if err := w.WriteHeader(&entry); err != nil {
			t.Fatal(err)
		}
		if entry.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(contents)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compress(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

func TestRead(t *testing.T) {
	t.Parallel()
	plain := archive(t, "hello", tar.Header{Name: "app/", Typeflag: tar.TypeDir}, tar.Header{Name: "app/../app/a", Typeflag: tar.TypeReg})
	for name, section := range map[string][]byte{"plain": plain, "compressed": compress(t, plain)} {
		files, err := bundle.Read(section, 5, nil)
		if err != nil || string(files["/app/a"]) != "hello" || len(files) != 1 {
			t.Errorf("%s: got %q, %v", name, files, err)
		}
	}
	many, deep := make([]tar.Header, bundle.MaxEntries+1), make([]tar.Header, bundle.MaxEntries/100)
	for i := range many {
		many[i] = tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeReg}
	}
	for i := range deep {
		deep[i] = tar.Header{Name: fmt.Sprint(i, strings.Repeat("/a", 100)), Typeflag: tar.TypeReg}
	}
	long := strings.Repeat("a/", bundle.MaxPath/2) + "a"
	for name, test := range map[string]struct {
		section      []byte
		path, reason string
	}{
		"a link":         {archive(t, "", tar.Header{Name: "l", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}), "l", "not a regular file"},
		"twice":          {archive(t, "", tar.Header{Name: "a", Typeflag: tar.TypeReg}, tar.Header{Name: "/./a", Typeflag: tar.TypeReg}), "/./a", "twice"},
		"above the root": {archive(t, "", tar.Header{Name: "a", Typeflag: tar.TypeReg}, tar.Header{Name: "../../a", Typeflag: tar.TypeReg}), "../../a", "twice"},
		"large":          {archive(t, "too long", tar.Header{Name: "a", Typeflag: tar.TypeReg}), "a", "no more than 5 bytes"},
		"sparse":         {sparse("a", 60<<20), "a", "sparse"},
		"many":           {archive(t, "", many...), fmt.Sprint(bundle.MaxEntries), "more than 20000"},
		"many folders":   {archive(t, "", deep...), "198" + strings.Repeat("/a", 100), "more than 20000"},
		"a long path":    {archive(t, "", tar.Header{Name: long, Typeflag: tar.TypeReg}), long, "1025 bytes"},
		"cut off":        {plain[:700], "", "damaged"},
		"no archive":     {[]byte("hello"), "", "damaged"},
		"a bomb":         {compress(t, archive(t, strings.Repeat("a", 64<<20), tar.Header{Name: "a", Typeflag: tar.TypeReg})), "a", "no more than 5 bytes"},
	} {
		_, err := bundle.Read(test.section, 5, nil)
		var refused *bundle.Error
		if !errors.As(err, &refused) || refused.Path != test.path || !strings.Contains(refused.Reason, test.reason) || refused.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sparse is an archive of one file that is a single hole, as GNU tar writes it with --sparse --format=pax.
func sparse(name string, size int) []byte {
	var records string
	for _, record := range []string{
		"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=" + name, fmt.Sprint("GNU.sparse.realsize=", size),
	} {
		records += fmt.Sprintf("%d %s\n", len(record)+len("99 \n"), record)
	}
	layout := fmt.Sprintf("1\n%d\n0\n", size)
	return slices.Concat(block("pax", 'x', len(records)), padded(records), block(name, '0', 512), padded(layout), make([]byte, 1024))
}

// block is a header of ustar.
func block(name string, kind byte, size int) []byte {
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000444\x000000000\x000000000\x00"+fmt.Sprintf("%011o\x0000000000000\x00        %c", size, kind))
	copy(b[257:], "ustar\x0000")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

func padded(text string) []byte { return append([]byte(text), make([]byte, 512-len(text)%512)...) }

// Memory is asked for before a file is unpacked.
func TestReadAsksFirst(t *testing.T) {
	t.Parallel()
	section := compress(t, archive(t, strings.Repeat("a", 1<<20), tar.Header{Name: "a", Typeflag: tar.TypeReg}, tar.Header{Name: "b", Typeflag: tar.TypeReg}))
	var asked int64
	files, err := bundle.Read(section, 4<<20, func(bytes int64) bool { asked += bytes; return asked < 2<<20 })
	if !errors.Is(err, bundle.ErrNoRoom) || files != nil || asked < 2<<20 {
		t.Errorf("got %d files, %v, after asking for %d bytes", len(files), err, asked)
	}
}

func FuzzRead(f *testing.F) {
	module, err := bundle.Append(header, map[string][]byte{"/app/handler.py": []byte("def handle(task): pass")})
	if err != nil {
		f.Fatal(err)
	}
	_, section, _ := bytes.Cut(module, []byte(bundle.Section))
	f.Add(section)
	f.Fuzz(func(t *testing.T, section []byte) {
		const most = 1 << 20
		files, err := bundle.Read(section, most, nil)
		size := 0
		for path, contents := range files {
			size += len(contents)
			if !strings.HasPrefix(path, "/") || strings.Contains(path, "/../") {
				t.Errorf("a path %q", path)
			}
		}
		if size > most || (err != nil && files != nil) {
			t.Errorf("%d bytes, %v", size, err)
		}
	})
}
