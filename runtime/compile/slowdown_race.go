//go:build race

package compile

// slowdown is the factor by which the race detector slows code down.
const slowdown = 20
