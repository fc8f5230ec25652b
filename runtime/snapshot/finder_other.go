//go:build !linux

package snapshot

// system can take no images, and so has no mode but New.
var system finders

// buffer is what finders work in.
type buffer struct{}
