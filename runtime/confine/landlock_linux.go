//go:build amd64 || arm64

package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	reading = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	ofFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	changing = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	tidying  = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR
)

// rights are the access rights of Landlock that each Access consists of.
var rights = map[Access]uint64{
	Read: reading,
	Write: reading | changing | tidying | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_REFER,
	Modify:  changing,
	Execute: unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE,
	Tidy:    tidying,
}

// restrictFiles limits all threads to the accesses that the rules permit. It can only forbid rights that this kernel
// knows: see refusable.
func restrictFiles(rules []Rule) error {
	handled, err := refusable()
	if err != nil {
		return err
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)),
		unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return fmt.Errorf("make rules for files: %w", errno)
	}
	defer func() { _ = unix.Close(int(set)) }()
	for _, rule := range rules {
		if err := permit(set, rule, handled); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make rule for %q: %w", rule.Path, err)
		}
	}
	// Both settings are per thread.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		if errno == unix.ENOTSUP {
			return errors.New("built with cgo, with which Landlock does not reach all threads: build with CGO_ENABLED=0")
		}
		return fmt.Errorf("set no_new_privs: %w", errno)
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("restrict files: %w", errno)
	}
	return nil
}

// refusable returns the rights that this kernel can refuse.
func refusable() (uint64, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno == unix.EOPNOTSUPP:
		return 0, errors.New("this kernel has Landlock switched off: add landlock to its parameter lsm")
	case errno != 0:
		return 0, fmt.Errorf("this kernel has no Landlock, Linux 5.19 has: %w", errno)
	case version < 2: // version 1 forbids moving files between folders, which the compile cache does
		return 0, errors.New("this kernel has version 1 of Landlock, Linux 5.19 has version 2")
	}
	handled := uint64(unix.LANDLOCK_ACCESS_FS_REFER<<1 - 1) // all rights of version 2
	if version >= 3 {
		handled |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 5 {
		handled |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return handled, nil
}

// permit adds a rule to a ruleset. handled are the rights that the ruleset refuses by default.
func permit(set uintptr, rule Rule, handled uint64) error {
	fd, err := unix.Open(rule.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	allowed := rights[rule.Access] & handled
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		allowed &= ofFiles
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: allowed, Parent_fd: int32(fd)} //nolint:gosec // it is a small number
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, set, unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
