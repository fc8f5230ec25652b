//go:build race

package compile

// slowdown is how many times longer code takes with the race detector.
const slowdown = 20
