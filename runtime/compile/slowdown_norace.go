//go:build !race

package compile

// slowdown is how much more time code takes that is built with the race detector: none here.
const slowdown = 1
