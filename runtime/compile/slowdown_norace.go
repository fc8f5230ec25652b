//go:build !race

package compile

// slowdown is how many times longer code takes with the race detector: this build is without it.
const slowdown = 1
