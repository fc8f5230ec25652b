package snapshot

import "errors"

var (
	errClosed   = errors.New("the image is closed")
	errReleased = errors.New("the space is released")
)
