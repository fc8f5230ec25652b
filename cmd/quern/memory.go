package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// availableMemory is what this process may have, in bytes: the machine's memory, or the limit of a
// cgroup that it is in, if that is less.
func availableMemory() (int64, error) {
	total, err := machineMemory("/proc/meminfo")
	if limit, ok := cgroupMemory("/proc/self/cgroup", "/sys/fs/cgroup"); ok && (err != nil || limit < total) {
		return limit, nil
	}
	return total, err
}

// machineMemory reads MemTotal.
func machineMemory(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New(path + " names no MemTotal")
}

// cgroupMemory is the least memory.max of the process's cgroup and those above it (version 2), or
// the limit of the memory controller (version 1).
func cgroupMemory(self, mount string) (int64, bool) {
	f, err := os.Open(self)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	var least int64
	consider := func(file string) {
		text, err := os.ReadFile(file)
		if err != nil {
			return
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, name := mount, "memory.max"
		if parts[0] != "0" {
			if parts[1] != "memory" {
				continue
			}
			root, name = filepath.Join(mount, "memory"), "memory.limit_in_bytes"
		}
		for dir := parts[2]; ; dir = filepath.Dir(dir) {
			consider(filepath.Join(root, dir, name))
			if dir == "/" || dir == "." {
				break
			}
		}
	}
	return least, least > 0
}
