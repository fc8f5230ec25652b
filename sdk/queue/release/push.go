package release

import (
	"context"
	"errors"
	"fmt"
)

// Target is a tenant to which releases are pushed: a Store, or a client of the API.
type Target interface {
	// MissingPieces returns the digests of pieces that must be put before a release can name them. sizes has the bytes of
	// each piece by digest. The pieces are kept for an hour at least.
	MissingPieces(ctx context.Context, sizes map[string]int64) ([]string, error)
	// PutPiece stores a piece that MissingPieces returned.
	PutPiece(ctx context.Context, digest string, data []byte) error
	// PushRelease makes a release the one to serve, or the canary if share is not nil. It returns the release as Redis has
	// it now.
	PushRelease(ctx context.Context, r Release, share *Share) (Release, error)
}

// pushAttempts is how often Push looks for missing pieces. Somebody may delete a piece meanwhile.
const pushAttempts = 3

// Push stores the files of a release and makes hosts serve it, for a share of the tasks if share is not nil. files are
// those from which the release was made. The files of a release with an artifact must be in the registry already.
func Push(ctx context.Context, to Target, r Release, files []Content, share *Share) (Release, error) {
	if r.Artifact != "" {
		return to.PushRelease(ctx, r, share)
	}
	for attempt := 1; ; attempt++ {
		missing, err := to.MissingPieces(ctx, r.Pieces())
		if err != nil {
			return Release{}, err
		}
		if err := putAll(ctx, to, &r, files, missing); err != nil {
			return Release{}, err
		}
		pushed, err := to.PushRelease(ctx, r, share)
		if errors.Is(err, ErrMissing) && attempt < pushAttempts {
			continue
		}
		return pushed, err
	}
}

func putAll(ctx context.Context, to Target, r *Release, files []Content, missing []string) error {
	wanted := make(map[string]bool, len(missing))
	for _, digest := range missing {
		wanted[digest] = true
	}
	for i, f := range r.Files {
		for j, digest := range f.Pieces {
			if !wanted[digest] {
				continue
			}
			delete(wanted, digest) // two files can have the same piece
			from := j * PieceBytes
			if err := to.PutPiece(ctx, digest, files[i].Data[from:min(from+PieceBytes, len(files[i].Data))]); err != nil {
				return fmt.Errorf("store %s of release: %w", f.Name, err)
			}
		}
	}
	return nil
}
