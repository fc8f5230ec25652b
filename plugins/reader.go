package plugins

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
)

// settleTime is the minimum age of a file's last change at which the next change certainly alters the fingerprint: the
// coarsest clock of a file system ticks every two seconds (FAT).
const settleTime = 2 * time.Second

// errUnstable means that a file changed while it was read, so that its content is unknown.
var errUnstable = errors.New("the file keeps changing while it is read: write it under another name and rename it")

// isUnstable reports whether a file changed or disappeared while it was read, so that its content is unknown.
func isUnstable(err error) bool { return errors.Is(err, errUnstable) || errors.Is(err, fs.ErrNotExist) }

// fingerprint has a file's identity, size and times: if it differs, the file may have changed since it was read. The
// zero value means that there is no file.
type fingerprint struct {
	info    fs.FileInfo
	changed time.Time // when the inode last changed; zero if the platform does not report it
}

// size returns the size of the file when it was found, or the largest number if there is no file.
func (s fingerprint) size() int64 {
	if s.info == nil {
		return math.MaxInt64
	}
	return s.info.Size()
}

// same reports whether both fingerprints are of the same file, with the same size and times.
func (s fingerprint) same(other fingerprint) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil
	}
	return os.SameFile(s.info, other.info) &&
		s.info.Size() == other.info.Size() &&
		s.info.ModTime().Equal(other.info.ModTime()) &&
		s.changed.Equal(other.changed)
}

// young reports whether the last change of the file is less than age before now. Another change in the same tick of
// the file system's clock could leave the fingerprint of a young file unchanged. A change in the future is young.
func (s fingerprint) young(now time.Time, age time.Duration) bool {
	if s.info == nil {
		return false
	}
	return now.Sub(s.info.ModTime()) < age || now.Sub(s.changed) < age
}

// content is a file that was read whole and did not change meanwhile.
type content struct {
	data        []byte
	fingerprint fingerprint
}

// comparison is a writer that compares what is written with the bytes that it holds. It removes the bytes that are
// equal, and returns errUnstable for others.
type comparison []byte

func (c *comparison) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(*c, p) {
		return 0, errUnstable
	}
	*c = (*c)[len(p):]
	return len(p), nil
}

// readStable reads name, a regular file of at most limit bytes inside root. It checks the file's type before and after
// opening, so that it never waits for the other end of a pipe and never opens a device. No link can lead it out of
// root. It returns errUnstable if the file changes while it is read, or has more than reserved bytes, for which the
// caller has reserved memory. The data is in buffer if that is large enough, otherwise in a new buffer.
func readStable(root, name string, limit, reserved int64, buffer []byte) (content, error) {
	folder, err := os.OpenRoot(root)
	if err != nil {
		return content{}, err
	}
	defer folder.Close()
	info, err := folder.Lstat(name)
	if err != nil {
		return content{}, err
	}
	if err := manifest.CheckFile(info, limit); err != nil {
		return content{}, err
	}
	f, err := folder.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return content{}, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return content{}, err
	}
	if err := manifest.CheckFile(info, limit); err != nil {
		return content{}, err
	}
	if info.Size() > reserved {
		return content{}, errUnstable
	}
	if buffer == nil || int64(cap(buffer)) < info.Size() {
		buffer = make([]byte, info.Size())
	}
	before, data := fingerprint{info, changeTime(info)}, buffer[:info.Size()]
	switch _, err := io.ReadFull(f, data); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return content{}, errUnstable
	case err != nil:
		return content{}, err
	}
	if before.young(time.Now(), settleTime) {
		// The file could have changed within the same tick of its clock, and kept its fingerprint: read it once more.
		second := comparison(data)
		if _, err := io.Copy(&second, io.NewSectionReader(f, 0, info.Size()+1)); err != nil {
			return content{}, err
		}
		if len(second) > 0 {
			return content{}, errUnstable
		}
	}
	if info, err = f.Stat(); err != nil {
		return content{}, err
	}
	if !before.same(fingerprint{info, changeTime(info)}) {
		return content{}, errUnstable
	}
	return content{data: data, fingerprint: before}, nil
}
