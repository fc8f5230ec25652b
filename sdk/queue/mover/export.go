package mover

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// exportFormat is the version of the file's form.
const exportFormat = 1

// maxExportLine is the maximum length of a line of an export in bytes. It bounds the memory of an import.
const maxExportLine = 256 << 20

// exportLine is a line of an export. The file is a sequence of gzip members, one for each block of keys: lines of
// JSON. The first line has Format, Tenant and Server, each member but the last ends with a line with Cursor, and
// the last line of the file has End.
type exportLine struct {
	Format int    `json:"quern_tenant,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Server string `json:"server,omitempty"` // the run ID of the Redis server, whose cursors these are; "" if unknown

	keyPart

	Cursor string `json:"cursor,omitempty"` // of SCAN, behind the block

	End    bool   `json:"end,omitempty"`
	Keys   int64  `json:"keys,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of all lines before this one
}

// Moved counts what an export, an import or a deletion has done.
type Moved struct {
	Keys int64 `json:"keys"`
}

// entriesOf returns the entries of a stream as values: the ID, and the JSON of the fields.
func entriesOf(entries []redis.XMessage) (values []string) {
	for _, entry := range entries {
		fields, _ := json.Marshal(entry.Values) // strings
		values = append(values, entry.ID, string(fields))
	}
	return values
}

// exporter writes an export.
type exporter struct {
	file     *os.File
	buffered *bufio.Writer
	zip      *gzip.Writer
	sum      hash.Hash // of all lines
	keys     int64
	last     string // the cursor behind the blocks that are there already; "" before the first
}

// Export writes all keys of the tenant to a new file, except what says who lives now: leases, duties, the sample.
// It writes FILE.part first; if that exists, from an export that was interrupted, it goes on there as long as the
// server is the same. Keys that change meanwhile are as they were at some moment of the export, each at its own:
// it is no snapshot, unless the tenant is paused and nothing runs. report is called after each block.
func (m Mover) Export(ctx context.Context, path string, report func(Moved)) (Moved, error) {
	if path == "" {
		return Moved{}, fmt.Errorf("%w: the name of the file is empty: name a new file", queue.ErrInvalid)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("%w: %s exists: name another file", queue.ErrInvalid, path)
		}
		return Moved{}, err
	}
	info, _ := manage.New(m.client).Info(ctx, "server") // without the permission, an interrupted export begins anew
	e, err := openPart(path+".part", m.store.Keys.Tenant, info["run_id"])
	if err != nil {
		return Moved{}, err
	}
	defer e.file.Close()
	err = m.exportBlocks(ctx, e, info["run_id"], report)
	if err == nil {
		err = e.file.Sync()
	}
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		err = fmt.Errorf("export to %s: %w: repeat it, and it goes on", path, err)
	}
	return Moved{e.keys}, err
}

// exportBlocks writes all blocks from e.last on.
func (m Mover) exportBlocks(ctx context.Context, e *exporter, server string, report func(Moved)) error {
	var cursor uint64
	if e.last != "" {
		if _, err := fmt.Sscan(e.last, &cursor); err != nil {
			return err
		}
	}
	for begun := e.last != ""; !begun || cursor != 0; begun = true {
		keys, next, err := m.scan(ctx, cursor)
		if err != nil {
			return err
		}
		cursor = next
		keys = slices.DeleteFunc(keys, func(key string) bool { return passing(key[len(m.store.Keys.Key("")):]) })
		if err := e.block(func(write func(exportLine) error) error {
			if !begun {
				if err := write(exportLine{Format: exportFormat, Tenant: m.store.Keys.Tenant, Server: server}); err != nil {
					return err
				}
			}
			err := m.dump(ctx, keys, func(part keyPart) error {
				if !part.More {
					e.keys++
				}
				part.encode()
				return write(exportLine{keyPart: part})
			})
			if err != nil {
				return err
			}
			return write(exportLine{Cursor: fmt.Sprint(cursor), Keys: e.keys})
		}); err != nil {
			return err
		}
		if report != nil {
			report(Moved{e.keys})
		}
	}
	sum := hex.EncodeToString(e.sum.Sum(nil))
	return e.block(func(write func(exportLine) error) error {
		return write(exportLine{End: true, Keys: e.keys, SHA256: sum})
	})
}

// block writes one gzip member.
func (e *exporter) block(fill func(write func(exportLine) error) error) error {
	e.buffered.Reset(e.file)
	e.zip.Reset(e.buffered)
	line := &bytes.Buffer{}
	lines := json.NewEncoder(line)
	lines.SetEscapeHTML(false)
	if err := fill(func(one exportLine) error {
		line.Reset()
		if err := lines.Encode(one); err != nil {
			return err
		}
		if line.Len() >= maxExportLine {
			return fmt.Errorf("%w: key %s has a value that is too large for an export: delete it, or its task", queue.ErrInvalid, one.Key)
		}
		_, err := line.WriteTo(io.MultiWriter(e.zip, e.sum))
		return err
	}); err != nil {
		return err
	}
	if err := e.zip.Close(); err != nil {
		return err
	}
	return e.buffered.Flush()
}

// lockPart opens the file of an export for this process alone. It follows no link, and nobody else may read it.
func lockPart(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%w: %s is a symbolic link: remove it, or name another file", queue.ErrInvalid, path)
	}
	if err != nil {
		return nil, err
	}
	opened, err := file.Stat()
	if err == nil && !opened.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no regular file: remove it, or name another file", queue.ErrInvalid, path)
	}
	if err == nil {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil { // an export may just have been completed, and given the file its name
		var present fs.FileInfo
		if present, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(opened, present) {
			err = syscall.EWOULDBLOCK
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w: another export writes to %s: wait for its end, or name another file", queue.ErrInvalid, path)
	}
	if err == nil {
		err = file.Chmod(0o600)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// openPart opens the file of an export, behind the last block that is whole. It refuses a file that is no part of an
// export of the tenant.
func openPart(path, tenant, server string) (*exporter, error) {
	file, err := lockPart(path)
	if err != nil {
		return nil, err
	}
	e := &exporter{file: file, buffered: bufio.NewWriterSize(nil, 1<<20), zip: gzip.NewWriter(nil), sum: sha256.New()}
	end, state, same, its := int64(0), []byte(nil), false, false
	err = readExport(file, func(line *exportLine, sum hash.Hash, offset int64) error { // up to where it is damaged
		switch {
		case line.Format != 0:
			its = line.Tenant == tenant
			same = line.Format == exportFormat && line.Tenant == tenant && line.Server == server && server != ""
		case line.Cursor != "" && line.Cursor != "0":
			e.last, e.keys, end = line.Cursor, line.Keys, offset
			state, _ = sum.(encoding.BinaryMarshaler).MarshalBinary() //nolint:errcheck // as crypto/sha256 documents
		}
		if !same {
			return errStop
		}
		return nil
	})
	if info, stat := file.Stat(); !its && (stat != nil || info.Size() > 0) && !begun(file, err) {
		err = fmt.Errorf("%w: %s exists, and is no part of an export of tenant %s: remove it, or name another file",
			queue.ErrInvalid, path, tenant)
		return nil, errors.Join(err, file.Close())
	}
	if !same || e.last == "" {
		e.last, e.keys, end = "", 0, 0
	} else if err := e.sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil { //nolint:errcheck // as above
		return nil, errors.Join(err, file.Close())
	}
	if err := file.Truncate(end); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	_, err = file.Seek(end, io.SeekStart)
	return e, err
}

// begun reports whether a file that readExport could not read is the beginning of an export's first block.
func begun(file io.ReaderAt, err error) bool {
	head := make([]byte, 3)
	_, short := file.ReadAt(head, 0)
	return short == nil && errors.Is(err, io.ErrUnexpectedEOF) && string(head) == "\x1f\x8b\x08"
}

// errStop ends readExport.
var errStop = errors.New("stop")

// counted counts what is read. gzip reads no further than its member from it, because it reads bytes.
type counted struct {
	*bufio.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counted) ReadByte() (byte, error) {
	b, err := c.Reader.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// readExport reads the lines of an export. For the last line of a member, offset is the end of that member in the
// file; sum has all lines up to and with this one.
func readExport(file io.Reader, each func(line *exportLine, sum hash.Hash, offset int64) error) error {
	in, sum := &counted{Reader: bufio.NewReaderSize(file, 1<<20)}, sha256.New()
	zip, err := gzip.NewReader(in)
	for {
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		zip.Multistream(false)
		lines := bufio.NewScanner(zip)
		lines.Buffer(make([]byte, 0, 1<<20), maxExportLine)
		var last *exportLine
		for lines.Scan() {
			if last != nil {
				if err := each(last, sum, 0); err != nil {
					return err
				}
			}
			last = &exportLine{}
			if err := json.Unmarshal(lines.Bytes(), last); err != nil {
				return err
			}
			if !last.End {
				sum.Write(lines.Bytes())
				sum.Write([]byte("\n"))
			}
		}
		if err := lines.Err(); err != nil {
			return err
		}
		if last != nil {
			if err := each(last, sum, in.n); err != nil {
				return err
			}
		}
		err = zip.Reset(in)
	}
}
