package nodehost

// machineMemory is the memory that this machine has, in bytes.
func machineMemory() (int64, error) { return totalMemory("/proc/meminfo") }
