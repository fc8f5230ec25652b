// Does what $BEHAVIOUR says: see languages_test.go.
package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const hello = "/data/hello.txt"

func main() {
	switch os.Getenv("BEHAVIOUR") {
	case "args":
		fmt.Print(len(os.Args), " ", os.Args[0])
	case "env":
		state := "unset"
		if _, ok := os.LookupEnv("NONE"); ok {
			state = "set"
		}
		fmt.Print(os.Getenv("GREETING"), "|", os.Getenv("TASK_ID"), "|", os.Getenv("EMPTY"), "|", state)
	case "stdin":
		digest(os.Stdin, 256<<10)
	case "stdin in small reads":
		digest(os.Stdin, 7)
	case "streams":
		for i := range 500 {
			fmt.Println("out", i)
			fmt.Fprintln(os.Stderr, "err", i)
		}
	case "flood":
		p := make([]byte, 1<<20)
		for i := range p {
			p[i] = byte(i * 7 >> 3)
		}
		must(os.Stdout.Write(p))
		for i := range 600 {
			fmt.Fprintf(os.Stderr, "%099d\n", i)
		}
	case "exit":
		fmt.Print("left")
		os.Exit(must(strconv.Atoi(os.Getenv("CODE"))))
	case "panic":
		panic("went wrong")
	case "trap":
		var none *int
		*none = 1
	case "clocks":
		clocks()
	case "sleep":
		began := time.Now()
		<-time.After(20 * time.Millisecond)
		if time.Since(began) < 20*time.Millisecond {
			fmt.Print("0 woke early")
		} else {
			fmt.Print("0 slept")
		}
	case "random":
		for range 3 {
			b := make([]byte, 16)
			must(rand.Read(b))
			fmt.Printf("%x ", b)
		}
	case "memory":
		p, sum := make([]byte, 32<<20), 0
		for i := 0; i < len(p); i += 4096 {
			p[i] = byte(i >> 12)
			sum += int(p[i])
		}
		fmt.Print(sum)
	default:
		files()
	}
}

func files() {
	switch os.Getenv("BEHAVIOUR") {
	case "file":
		cat(hello)
	case "relative path":
		cat("data/hello.txt")
	case "large file":
		digest(must(os.Open("/data/nested/deep/large")), 10000)
	case "seek":
		seek()
	case "stat":
		for _, info := range []os.FileInfo{must(os.Stat(hello)), must(must(os.Open(hello)).Stat())} {
			fmt.Print(info.Size(), " ", kind(info.Mode()), " ")
		}
		empty := must(os.Stat("/data/empty"))
		fmt.Print(kind(must(os.Stat("/data/nested")).Mode()), " ", empty.Size(), " ", kind(empty.Mode()))
	case "missing file":
		outside := "open"
		if number(opening("/data/../../etc/passwd", os.O_RDONLY)) != 0 {
			outside = "closed"
		}
		fmt.Print(number(opening("/data/none", os.O_RDONLY)), " ", number(opening("/data/none/below", os.O_RDONLY)), " ",
			number(opening(hello+"/below", os.O_RDONLY)), " ", outside)
	case "writes":
		fmt.Print(number(opening(hello, os.O_WRONLY)), " ", number(opening("/data/new", os.O_WRONLY|os.O_CREATE)), " ",
			number(os.Mkdir("/data/dir", 0o777)), " ", number(os.Remove(hello)), " ", number(os.Rename(hello, "/data/other")), " ")
		cat(hello)
	case "directories":
		for _, e := range must(os.ReadDir("/data")) {
			fmt.Print(e.Name(), ":", kind(e.Type()), " ")
		}
		many := must(os.ReadDir("/many"))
		first, last := many[0], many[len(many)-1]
		fmt.Print(len(many), " ", first.Name(), ":", kind(first.Type()), " ", last.Name(), ":", kind(last.Type()))
	case "checkpoint":
		cat("/checkpoint")
	default:
		os.Exit(1)
	}
}

// digest reads a file to its end, with reads of so many bytes.
func digest(in *os.File, step int) {
	hash, total, buffer := fnv.New32a(), 0, make([]byte, step)
	for {
		n, err := in.Read(buffer)
		hash.Write(buffer[:n])
		total += n
		if err != nil {
			again, err := in.Read(buffer)
			if again != 0 || !errors.Is(err, io.EOF) {
				panic(err)
			}
			fmt.Printf("%d %08x 0", total, hash.Sum32())
			return
		}
	}
}

func clocks() {
	first := time.Now()
	last := first
	for range 1000 {
		next := time.Now()
		if next.Sub(last) < 0 {
			panic("back in time")
		}
		last = next
	}
	word := "rising"
	if last.Sub(first) <= 0 {
		word = "standing"
	}
	fmt.Print(last.UnixNano(), " ", word)
}

func cat(path string) {
	contents, err := os.ReadFile(path)
	if err != nil {
		fmt.Print(number(err))
		return
	}
	must(io.Copy(os.Stdout, bytes.NewReader(contents)))
}

func seek() {
	var word strings.Builder
	f := must(os.Open(hello))
	must(f.Seek(-5, io.SeekEnd))
	must(io.CopyN(&word, f, 4))
	word.WriteString(" ")
	must(f.Seek(7, io.SeekStart))
	must(io.CopyN(&word, f, 7))
	back := must(f.Seek(-7, io.SeekCurrent))
	beyond := must(f.Seek(100, io.SeekStart))
	n, _ := f.Read(make([]byte, 1))
	_, err := f.Seek(-1, io.SeekStart)
	fmt.Print(word.String(), " ", back, " ", beyond, " ", n, " ", number(err))
}

func kind(mode os.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "directory"
	default:
		return "other"
	}
}

func opening(path string, flags int) error {
	_, err := os.OpenFile(path, flags, 0o666)
	return err
}

// number is WASI's of an error.
func number(err error) int {
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		panic(err)
	}
	return int(errno)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
