// Command demo makes thumbnails of real photographs with everything that Quern has on one machine:
// it starts `quern dev`, enqueues every photograph several times, counts what is finished, writes
// the thumbnails, and shows what Prometheus would see. make demo builds what it needs and runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	_ "image/jpeg"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

const queueName = "thumbnails"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// settings are the demo's flags.
type settings struct {
	quern   string // the program
	plugins string // folder with thumbnails.wasm
	photos  string // folder with the photographs
	out     string // folder to write to
	repeat  int    // number of times that each photograph is enqueued
	timeout time.Duration
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.quern, "quern", "build/quern", "the program quern")
	flags.StringVar(&s.plugins, "plugins", "build/handlers", "the folder in which thumbnails.wasm is")
	flags.StringVar(&s.photos, "photos", "examples/thumbnails/photos", "the folder in which the photographs are")
	flags.StringVar(&s.out, "out", "build/demo", "the folder to write thumbnails to")
	flags.IntVar(&s.repeat, "repeat", 2, "how often each photograph is enqueued, at least once")
	flags.DurationVar(&s.timeout, "timeout", 55*time.Second, "how long all of it may take")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: the demo takes flags only", flags.Arg(0))
	}
	if s.repeat < 1 {
		return s, fmt.Errorf("-repeat is %d: must be at least 1", s.repeat)
	}
	return s, nil
}

// run is the whole demo. Whatever happens, the host that it starts is gone when it returns.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	set, err := parse(args, stderr)
	if err != nil {
		return err
	}
	photos, err := load(set.photos)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(set.out, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, set.timeout,
		fmt.Errorf("not finished after %s: this machine may be busy; -timeout gives it more time", set.timeout))
	defer cancel()

	node, err := startHost(set.quern, set.plugins, set.out)
	if err != nil {
		return err
	}
	defer func() {
		if stopped := node.stop(); err == nil {
			err = stopped
		}
		if err != nil {
			fmt.Fprintf(stderr, "The end of %s:\n%s\n", node.logPath, node.logEnd())
		}
	}()
	fmt.Fprintf(stdout, "starting quern dev, whose log is %s\n", node.logPath)
	ctx, abandon := context.WithCancelCause(ctx)
	go func() { // ends with the host, whose end this function awaits
		<-node.exited
		abandon(errors.New("quern dev ended too early"))
	}()
	if err := node.waitReady(ctx); err != nil {
		return err
	}
	return show(ctx, set, node, photos, stdout)
}

// show runs the tasks on a host that is ready, and prints their results.
func show(ctx context.Context, set settings, node *host, photos []photo, stdout io.Writer) error {
	client, err := queue.New(node.address.Redis, queue.Config{})
	if err != nil {
		return err
	}
	defer client.Close()

	total := len(photos) * set.repeat
	fmt.Fprintf(stdout, "%d photographs, %d times each: %d tasks for the queue %q\n", len(photos), set.repeat, total,
		queueName)
	began := time.Now()
	bar := newBar(stdout, total)
	thumbnails, err := process(ctx, client, photos, set.repeat, bar.step)
	bar.end()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "done in %.1f s\n\n", time.Since(began).Seconds())

	for i, p := range photos {
		path := filepath.Join(set.out, p.name)
		if err := os.WriteFile(path, thumbnails[i], 0o644); err != nil {
			return err
		}
		size, err := describe(thumbnails[i])
		if err != nil {
			return fmt.Errorf("thumbnail of %q: %w", p.name, err)
		}
		fmt.Fprintf(stdout, "%-28s %-24s was %s\n", path, size, p.size)
	}

	lines, err := node.metrics(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nWhile it ran, Prometheus could read %s:\n%s\n", node.metricsURL(), strings.Join(lines, "\n"))
	return nil
}

// photo is an original photograph.
type photo struct {
	name string // the name of its file
	data []byte
	size string // size of the picture, as describe returns it
}

func load(folder string) ([]photo, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.jpg"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no photographs (*.jpg) in %q: name a folder with -photos", folder)
	}
	photos := make([]photo, len(paths))
	for i, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		size, err := describe(data)
		if err != nil {
			return nil, fmt.Errorf("read photograph %q: %w", path, err)
		}
		photos[i] = photo{name: filepath.Base(path), data: data, size: size}
	}
	return photos, nil
}

// describe returns how large a picture is, such as "320 x 180, 12.2 KiB".
func describe(picture []byte) (string, error) {
	config, _, err := image.DecodeConfig(bytes.NewReader(picture))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d x %d, %.1f KiB", config.Width, config.Height, float64(len(picture))/1024), nil
}
