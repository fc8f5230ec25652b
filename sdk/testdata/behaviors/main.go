// Command behaviors is a handler that does what its input says.
package main

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
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

func behave(ctx context.Context, task *sdk.Task) ([]byte, error) {
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
		sdk.Progress(0.25, "kept")
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
	case "progress":
		sdk.Progress(2, strings.Repeat("é", 1000))
		return nil, sdk.Log(sdk.Debug, "said", "a", "b")
	case "context":
		return waits(ctx, task, rest)
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
	case "spin":
		spin()
	case "turn":
		turn(1, 1<<20)
	case "spin elsewhere":
		go func() { recurse(3) }()
		select {}
	case "flood":
		flood()
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
		return fmt.Append(nil, rand.Int63(), " ", rand.Int63()), nil
	case "math/rand/v2":
		return fmt.Append(nil, randv2.Int64(), " ", randv2.N(time.Hour)), nil
	case "hash/maphash":
		var h maphash.Hash
		return fmt.Append(nil, h.Sum64(), " ", maphash.String(maphash.MakeSeed(), "")), nil
	case "source":
		return fmt.Append(nil, seeded.Int63()), nil
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

// waits says what it sees of its context, and "ready" by its progress when it is about to wait for its end.
func waits(ctx context.Context, task *sdk.Task, how string) ([]byte, error) {
	child, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	called := make(chan struct{})
	context.AfterFunc(ctx, func() { close(called) })
	if how != "told" {
		sdk.Progress(0, "ready")
	}
	switch how {
	case "err":
		for ctx.Err() == nil {
		}
	case "poll":
		for polling := true; polling; {
			select {
			case <-ctx.Done():
				polling = false
			default:
			}
		}
	case "wait":
		<-ctx.Done()
	case "child":
		<-child.Done()
	case "timeout":
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		<-short.Done()
		return fmt.Append(nil, short.Err(), " ", ctx.Err(), " ", child.Err()), nil
	case "deadline":
		at, ok := ctx.Deadline()
		same, _ := task.Deadline()
		left := time.Until(at)
		return fmt.Append(nil, ok, at.Equal(same), ok && 0 < left && left <= time.Minute, ctx.Value(called)), nil
	}
	<-child.Done()
	<-called
	return fmt.Append(nil, ctx.Err(), ", ", context.Cause(ctx), ", ", child.Err(), ", ", task.Cancelled()), nil
}

var turns int

func spin() {
	for {
		turns++
	}
}

//go:noinline
func turn(from, to int) int {
	for from < to {
		if turns += from; turns > to {
			turns = 0
		}
		from ^= turns & 1
	}
	return from
}

//go:noinline
func recurse(n int) int {
	if n == 0 {
		spin()
	}
	return recurse(n-1) + 1
}

//go:noinline
func flood() {
	for {
		fmt.Fprintln(os.Stderr, "to standard error")
	}
}
