// Command behaviors is a handler that does what its input says.
package main

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand"
	randv2 "math/rand/v2"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk"
)

func main() { sdk.Handle(behave) }

//go:wasmexport quern_handle
func Handle() int32 {
	if os.Getenv("MODE") == "misplaced" {
		sdk.Handle(behave)
	}
	return sdk.Run(behave)
}

// What every task begins with.
var (
	started    = time.Now()
	tasks      int
	seeded     = rand.New(rand.NewSource(time.Now().UnixNano()))
	opened     *os.File
	openErr    error
	ask        = make(chan int)
	answer     = make(chan int)
	kept       = &sdk.Task{} // of the call before
	none       *sdk.Task
	errNoPaper = errors.New("the printer is out of paper")
)

func init() {
	if os.Getenv("MODE") == "early" {
		Handle()
	}
	log.SetFlags(0)
	log.Print("the start is in nobody's log")
	opened, openErr = os.Open("/data/page")
	go func() {
		sum := 0
		for n := range ask {
			sum += n
			answer <- sum
		}
	}()
}

func behave(_ context.Context, task *sdk.Task) ([]byte, error) {
	tasks++
	verb, rest, _ := strings.Cut(string(task.Input), " ")
	switch verb {
	case "":
		return nil, nil
	case "shout":
		return []byte(strings.ToUpper(rest)), nil
	case "task":
		task.Input = nil
		return fmt.Appendf(nil, "%+v; TASK_ID %q, MODE %q", *task, os.Getenv("TASK_ID"), os.Getenv("MODE")), nil
	case "write":
		n, err := strconv.Atoi(rest)
		return bytes.Repeat([]byte("x"), n), err
	case "kept":
		first := kept
		kept = task
		return fmt.Appendf(nil, "%q %q", first.Input, task.Input), nil
	case "log":
		log.Print("to standard error")
		fmt.Println("to standard output")
		sdk.Progress(0.5, "half way")
		read, err := io.ReadAll(os.Stdin)
		return fmt.Appendf(nil, "stdin %q %v", read, err), nil
	case "fail":
		return []byte("half a result"), fail(rest)
	case "panic":
		return nil, panics(rest)
	case "copy":
		return copied(rest)
	}
	return nil, sdk.Fatal(fmt.Errorf("no behavior %q", task.Input))
}

func fail(how string) error {
	switch how {
	case "retry":
		return sdk.Retry(errNoPaper)
	case "after":
		return fmt.Errorf("print page 2: %w", sdk.RetryAfter(errNoPaper, 90*time.Second))
	case "soon":
		return sdk.RetryAfter(errNoPaper, time.Nanosecond)
	case "fatal":
		return sdk.Fatal(errNoPaper)
	}
	return errNoPaper
}

func panics(how string) error {
	switch how {
	case "error":
		panic(sdk.Fatal(errNoPaper))
	case "runtime":
		task := none
		task.Attempt++
	case "goroutine":
		go func() { panic("in a goroutine") }()
		select {}
	case "goexit":
		goruntime.Goexit()
	case "deadlock":
		select {}
	case "exit":
		os.Exit(75)
	}
	panic("out of ink")
}

// copied shows what a task finds of what the start has left.
func copied(what string) ([]byte, error) {
	switch what {
	case "memory":
		return []byte(strconv.Itoa(tasks)), nil
	case "goroutine":
		ask <- 5
		return []byte(strconv.Itoa(<-answer)), nil
	case "file":
		fresh, err := os.ReadFile("/data/page")
		stale, staleErr := io.ReadAll(opened)
		return fmt.Appendf(nil, "%q %v; at the start %v, now %s%v", fresh, err, openErr, stale, staleErr), nil
	case "time":
		return []byte(started.Format(time.RFC3339Nano)), nil
	case "math/rand":
		return fmt.Append(nil, rand.Int63(), " ", randv2.Int64(), " ", seeded.Int63()), nil
	case "map":
		order := ""
		for range 8 {
			for i := range map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true} {
				order += strconv.Itoa(i)
			}
		}
		return []byte(order), nil
	case "crypto/rand":
		drawn := make([]byte, 16)
		if _, err := crand.Read(drawn); err != nil {
			return nil, err
		}
		return []byte(hex.EncodeToString(drawn) + " " + crand.Text()), nil
	}
	return nil, sdk.Fatal(errors.New("no copy of that"))
}
