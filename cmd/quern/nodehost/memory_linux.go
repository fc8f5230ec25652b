package nodehost

// machineMemory returns the memory of this machine, in bytes.
func machineMemory() (int64, error) { return totalMemory("/proc/meminfo") }
