package snapshot

import "sync"

// Family is the images of memories that have much in common, such as those of one module. They share the pages in which they
// equal one of them, the base. The zero value is ready for use.
type Family struct {
	mu   sync.Mutex
	base *Image // perhaps closed
}

// Take makes an image of contents like the package's Take. A lasting one that shares nothing becomes the base.
func (f *Family) Take(contents []byte, lasting bool) (*Image, error) {
	f.mu.Lock()
	base := f.base
	f.mu.Unlock()
	image, err := Take(contents, base)
	if err == nil && lasting && image.shared == nil {
		f.mu.Lock()
		f.base = image
		f.mu.Unlock()
	}
	return image, err
}
