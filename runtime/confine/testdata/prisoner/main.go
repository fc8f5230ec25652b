// Command prisoner confines itself by the rules that its flags give, and then tries one operation.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/elastic/go-seccomp-bpf/arch"

	"github.com/quern-project/quern/runtime/confine"
)

func main() {
	if err := run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run() error {
	var rules []confine.Rule
	for name, access := range map[string]confine.Access{
		"read": confine.Read, "write": confine.Write, "modify": confine.Modify, "execute": confine.Execute, "tidy": confine.Tidy,
	} {
		flag.Func(name, "a path", func(path string) error {
			rules = append(rules, confine.Rule{Access: access, Path: path})
			return nil
		})
	}
	free := flag.Bool("free", false, "do not confine")
	flag.Parse()
	if *free {
		return try(flag.Arg(0), flag.Args()[1:])
	}
	// The operation runs on a thread that was started before the process is confined.
	work, done := make(chan func() error), make(chan error)
	started := make(chan struct{})
	go func() {
		goruntime.LockOSThread()
		close(started)
		done <- (<-work)()
	}()
	<-started
	c := confine.Process(rules)
	fmt.Printf("calls: %v, files: %v\n", c.Calls, c.Files)
	work <- func() error { return try(flag.Arg(0), flag.Args()[1:]) }
	return <-done
}

func try(what string, args []string) error {
	switch what {
	case "nothing":
		return nil
	case "read":
		_, err := os.ReadFile(args[0])
		return err
	case "list":
		_, err := os.ReadDir(args[0])
		return err
	case "write":
		return os.WriteFile(args[0], []byte("written"), 0o600)
	case "move":
		return os.Rename(args[0], args[1])
	case "remove":
		return os.Remove(args[0])
	case "run":
		child := exec.Command(args[0], args[1:]...)
		child.Stdin = strings.NewReader("") // else os/exec opens /dev/null
		out, err := child.CombinedOutput()
		_, _ = os.Stdout.Write(out)
		return err
	case "call": // NAME ARGUMENTS
		info, err := arch.GetInfo("")
		if err != nil {
			return err
		}
		number, ok := info.SyscallNames[args[0]]
		if !ok {
			return errors.New("no such call: " + args[0])
		}
		return call(uintptr(number), args[1:])
	case "number": // NUMBER ARGUMENTS
		number, err := strconv.ParseUint(args[0], 0, 64)
		if err != nil {
			return err
		}
		return call(uintptr(number), args[1:])
	}
	return errors.New("no such thing: " + what)
}

func call(number uintptr, args []string) error {
	var a [6]uintptr
	for i, arg := range args {
		n, err := strconv.ParseUint(arg, 0, 64)
		if err != nil {
			return err
		}
		a[i] = uintptr(n)
	}
	if _, _, errno := syscall.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}
