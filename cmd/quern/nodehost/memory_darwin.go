package nodehost

import "golang.org/x/sys/unix"

// machineMemory returns the memory of this machine, in bytes.
func machineMemory() (int64, error) {
	size, err := unix.SysctlUint64("hw.memsize")
	return int64(size), err
}
