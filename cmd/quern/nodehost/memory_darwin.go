package nodehost

import "golang.org/x/sys/unix"

// machineMemory is the memory that this machine has, in bytes.
func machineMemory() (int64, error) {
	size, err := unix.SysctlUint64("hw.memsize")
	return int64(size), err
}
