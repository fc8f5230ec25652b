//go:build !race

package compile

// slowdown is the factor by which the race detector slows code down. This build has no race detector.
const slowdown = 1
