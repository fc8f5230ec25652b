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

// settleTime is how old a file's last change must be before its fingerprint is trusted to differ after the next
// change: the coarsest clock of a file system ticks every two seconds (FAT).
const settleTime = 2 * time.Second

// errUnstable means that a file changed while it was read, so that its content is unknown.
var errUnstable = errors.New("the file keeps changing while it is read: write it under another name and rename it")

// isUnstable reports whether a file changed or disappeared while it was read, so that its content is unknown.
func isUnstable(err error) bool { return errors.Is(err, errUnstable) || errors.Is(err, fs.ErrNotExist) }

// fingerprint has a file's identity, size and times: if it differs, the file may have changed since it was read. Zero
// is no file.
type fingerprint struct {
	info    fs.FileInfo
	changed time.Time // of the inode; zero where the platform does not say
}

// size returns the size of the file when it was found; the largest number if there is no file.
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

// young reports whether the last change is less than within ago: another change in the same tick of the file system's
// clock could leave the fingerprint as it is. A time in the future is young.
func (s fingerprint) young(now time.Time, within time.Duration) bool {
	if s.info == nil {
		return false
	}
	return now.Sub(s.info.ModTime()) < within || now.Sub(s.changed) < within
}

// content is a file that was read whole and did not change meanwhile.
type content struct {
	data        []byte
	fingerprint fingerprint
}

// comparison is a writer that accepts only the bytes that it holds, in their order, and removes them. For other bytes
// it returns errUnstable.
type comparison []byte

func (c *comparison) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(*c, p) {
		return 0, errUnstable
	}
	*c = (*c)[len(p):]
	return len(p), nil
}

// readStable reads name, a regular file inside root. It checks the file's type before and after opening, so that it
// never waits for the other end of a pipe and never opens a device. No link can lead it out of root. It returns
// errUnstable if the file changes while it is read, or is larger than found, the size for which the caller has reserved
// memory. The data is in buffer if that is large enough, otherwise in a new one.
func readStable(root, name string, most, found int64, buffer []byte) (content, error) {
	folder, err := os.OpenRoot(root)
	if err != nil {
		return content{}, err
	}
	defer folder.Close()
	info, err := folder.Lstat(name)
	if err != nil {
		return content{}, err
	}
	if err := manifest.CheckFile(info, most); err != nil {
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
	if err := manifest.CheckFile(info, most); err != nil {
		return content{}, err
	}
	if info.Size() > found {
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
		// Within one tick of its clock the file could change and keep its fingerprint: it is read once more.
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
