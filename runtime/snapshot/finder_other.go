//go:build !linux

package snapshot

// system can take no images, and so has no rung but New.
var system ladder

// buffer is what finders work in.
type buffer struct{}
