package rollout

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue/release"
)

// Blobs reads the bytes of releases by their digests.
type Blobs interface {
	// Piece reads a piece of a file. release.Store does.
	Piece(ctx context.Context, digest string) ([]byte, error)
	Artifacts
}

const (
	// unusedTime is how long a folder is kept that no host uses. Hosts record that they use a folder each minute.
	unusedTime = 24 * time.Hour
	useTime    = time.Minute
	// stagePrefix begins the names of folders that are being written; one older than stageTime is left over.
	stagePrefix = ".new-"
	stageTime   = time.Hour
)

// Cache is the folder with the releases that hosts of this machine have fetched. It is safe for concurrent use.
type Cache struct {
	mu        sync.Mutex
	dir       string // guarded by mu; "" until a temporary folder is made
	temporary bool
}

// NewCache returns the cache in dir. If dir is "", the cache is a temporary folder, which Close removes.
func NewCache(dir string) *Cache { return &Cache{dir: dir, temporary: dir == ""} }

// Close removes a temporary cache.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.temporary || c.dir == "" {
		return nil
	}
	return os.RemoveAll(c.dir)
}

// open makes the folder of the cache, and returns its path.
func (c *Cache) open() (_ string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "quern-releases-"); err != nil {
			return "", fmt.Errorf("make a temporary folder for releases: %w", err)
		}
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return "", fmt.Errorf("make the folder for releases: %w", err)
	}
	return c.dir, nil
}

// find returns the folder for the files of a release, and whether it has them.
func (c *Cache) find(r *release.Release) (folder string, has bool, err error) {
	dir, err := c.open()
	if err != nil {
		return "", false, err
	}
	folder = filepath.Join(dir, r.Digest())
	return folder, check(folder, r) == nil, nil
}

// unfit is why a release cannot serve although it can be fetched: its signature, its bytes, or what the plugin
// directory says. Another attempt to fetch it ends the same way. Pieces that are gone are as bad: only another push
// puts them.
type unfit struct{ error }

func (u unfit) Unwrap() error { return u.error }

func isUnfit(err error) bool {
	_, is := errors.AsType[unfit](err)
	return is || errors.Is(err, release.ErrMissing)
}

// obtain returns the folder with the files of a release, which it fetches if necessary. before is the folder of another
// release of the plugin, or "".
func (c *Cache) obtain(ctx context.Context, r *release.Release, blobs Blobs, before string) (string, error) {
	folder, has, err := c.find(r)
	if has || err != nil {
		return folder, err
	}
	stage, err := os.MkdirTemp(filepath.Dir(folder), stagePrefix)
	if err != nil {
		return "", fmt.Errorf("write a release: %w", err)
	}
	defer os.RemoveAll(stage) // it is gone if all went well
	var open func(*release.File) (io.ReadCloser, error)
	if r.Artifact != "" {
		ctx, end := context.WithTimeout(ctx, artifactTime(r))
		defer end()
		if open, err = blobs.Files(ctx, r); err != nil {
			return "", err
		}
	}
	for i := range r.Files {
		if err := fetch(ctx, &r.Files[i], blobs, open, stage, before); err != nil {
			return "", err
		}
	}
	if err := check(stage, r); err != nil {
		return "", unfit{err}
	}
	if err := os.Rename(stage, folder); err == nil || check(folder, r) == nil { // another host may have been faster
		return folder, nil
	}
	if err := os.RemoveAll(folder); err != nil { // it is damaged
		return "", fmt.Errorf("replace a damaged release: %w", err)
	}
	if err := os.Rename(stage, folder); err != nil && check(folder, r) != nil {
		return "", fmt.Errorf("write a release: %w", err)
	}
	return folder, nil
}

// fetch writes a file of a release into a folder. open opens the file if it is in a registry; nil if it is not.
func fetch(ctx context.Context, f *release.File, blobs Blobs, open func(*release.File) (io.ReadCloser, error),
	into, before string,
) (err error) {
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(path.Dir(f.Name), 0o700); err != nil {
		return fmt.Errorf("write %s of a release: %w", f.Name, err)
	}
	file, err := root.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write %s of a release: %w", f.Name, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	old := &earlier{}
	if before != "" {
		old = openEarlier(before, f.Name)
		defer old.Close()
	}
	if open != nil {
		return fetchWhole(f, open, file, old)
	}
	for i, digest := range f.Pieces {
		data := old.piece(int64(i), digest)
		if data == nil {
			if data, err = blobs.Piece(ctx, digest); err != nil {
				return fmt.Errorf("fetch %s of a release: %w", f.Name, err)
			}
		}
		if _, err := file.Write(data); err != nil {
			return fmt.Errorf("write %s of a release: %w", f.Name, err)
		}
	}
	return nil
}

// earlier is a file of another release, which may have the same pieces.
type earlier struct{ *os.File }

func openEarlier(folder, name string) *earlier {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return &earlier{}
	}
	defer root.Close()
	file, err := root.Open(name)
	if err != nil {
		return &earlier{}
	}
	return &earlier{file}
}

// Close closes the file if there is one.
func (e *earlier) Close() {
	if e.File != nil {
		_ = e.File.Close() // it was only read
	}
}

// piece returns the piece with this index, or nil if it has another digest.
func (e *earlier) piece(i int64, digest string) []byte {
	if e.File == nil {
		return nil
	}
	data, err := io.ReadAll(io.NewSectionReader(e.File, i*release.PieceBytes, release.PieceBytes))
	if sum := sha256.Sum256(data); err != nil || hex.EncodeToString(sum[:]) != digest {
		return nil
	}
	return data
}

// check returns an error unless a folder has the files of a release, and no others.
func check(folder string, r *release.Release) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range r.Files {
		if err := checkFile(root, &f); err != nil {
			return fmt.Errorf("%s of release: %w", f.Name, err)
		}
	}
	files := 0
	err = fs.WalkDir(root.FS(), ".", func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files++
		}
		return err
	})
	if err == nil && files != len(r.Files) {
		err = fmt.Errorf("the folder of the release has %d files, and not %d", files, len(r.Files))
	}
	return err
}

func checkFile(root *os.Root, f *release.File) error {
	info, err := root.Lstat(f.Name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != f.Size {
		return fmt.Errorf("it has %d bytes, and not %d", info.Size(), f.Size)
	}
	file, err := root.Open(f.Name)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if want, _ := hex.DecodeString(f.Digest); !bytes.Equal(sum.Sum(nil), want) {
		return fmt.Errorf("its bytes have the digest %x, and the release names %s: push it again", sum.Sum(nil), f.Digest)
	}
	return nil
}

// use records that folders are in use, and removes those that were not used for long.
func (c *Cache) use(folders []string, now time.Time) error {
	for _, folder := range folders {
		_ = os.Chtimes(folder, now, now) // if the folder is gone, the next look fetches it again
	}
	c.mu.Lock()
	dir := c.dir
	c.mu.Unlock()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		kept := unusedTime
		if strings.HasPrefix(entry.Name(), stagePrefix) {
			kept = stageTime
		}
		if info, failed := entry.Info(); failed == nil && now.Sub(info.ModTime()) > kept {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}
