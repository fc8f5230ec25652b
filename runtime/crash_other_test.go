//go:build !linux

package runtime

// There is no monitor of crashes here.
const doomedMode = "doomed-"

func beDoomed(string) int { return 1 }
