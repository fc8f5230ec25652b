package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quern-project/quern/sdk/queue/release"
)

// Artifacts reads releases whose bytes are in OCI registries. oci.Client is one.
type Artifacts interface {
	// Files returns a function that opens files of a release in its artifact, until ctx ends. The readers check size and
	// digest before io.EOF.
	Files(ctx context.Context, r *release.Release) (func(f *release.File) (io.ReadCloser, error), error)
}

// NoArtifacts are the Artifacts of a host that dials no registry.
type NoArtifacts struct{}

// Files implements Artifacts.
func (NoArtifacts) Files(_ context.Context, r *release.Release) (func(*release.File) (io.ReadCloser, error), error) {
	return nil, fmt.Errorf("this host dials no registry, and the files are in %s: start it with --registry HOST", r.Artifact)
}

// artifactTime is the maximum time to fetch an artifact: half a minute, and a second for each MiB. Meanwhile the
// tenant's other artifacts wait.
func artifactTime(r *release.Release) time.Duration {
	return 30*time.Second + time.Duration(r.Size()>>20)*time.Second
}

// fetchWhole writes a file of an artifact, which it copies from another release if that has the same file.
func fetchWhole(f *release.File, open func(*release.File) (io.ReadCloser, error), to io.Writer, old *earlier) error {
	to = struct{ io.Writer }{to} // a confined host may not call copy_file_range, which io.Copy does between files
	if old.has(f) {
		if _, err := io.Copy(to, old.File); err != nil {
			return fmt.Errorf("copy %s of a release: %w", f.Name, err)
		}
		return nil // what was copied is checked with the whole folder
	}
	file, err := open(f)
	if err != nil {
		return fmt.Errorf("fetch %s of a release: %w", f.Name, err)
	}
	_, err = io.Copy(to, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("fetch %s of a release: %w", f.Name, err)
	}
	return nil
}

// has reports whether the file has the content of a file of another release. It then is at its start.
func (e *earlier) has(f *release.File) bool {
	if e.File == nil {
		return false
	}
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(e.File, f.Size+1))
	if err != nil || n != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.Digest {
		return false
	}
	_, err = e.Seek(0, io.SeekStart)
	return err == nil
}
