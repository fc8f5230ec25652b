package main

import (
	"bytes"
	"image"
	"image/jpeg"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/sdktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandle(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Config["size"] = "64"
	photo := sdktest.Task{Input: readFile(t, "photos/fig.jpg")}
	r := h.Run(handle, photo)
	if config, err := jpeg.DecodeConfig(bytes.NewReader(r.Result)); err != nil || config.Width != 64 {
		t.Errorf("%v: a picture %d wide (%v), want 64", r, config.Width, err)
	}
	if want := []sdktest.Progress{{Message: "decoding"}, {Fraction: 0.5, Message: "scaling"}, {Fraction: 0.95, Message: "encoding"}}; !slices.Equal(r.Progress, want) {
		t.Errorf("progress %v, want %v", r.Progress, want)
	}
	h.Config["size"] = "large"
	if r := h.Run(handle, photo); r.Outcome != sdktest.Failed || !strings.Contains(r.Err.Error(), `config: size is "large"`) {
		t.Errorf("%v, want a failure that names the setting", r)
	}
}

// TestPlugin runs what the other tests here hold natively once more in its true surroundings.
func TestPlugin(t *testing.T) {
	t.Parallel()
	folder := goTestdata(t)
	plugin := exampletest.New(t).Build(t, ".")

	complete := map[string]struct {
		file string
		size image.Point
	}{
		"OKPhoto":       {"photos/dogs.jpg", image.Pt(213, 320)},
		"OKCMYK":        {filepath.Join(folder, "video-001.cmyk.jpeg"), image.Pt(150, 103)},
		"OKProgressive": {filepath.Join(folder, "video-001.progressive.jpeg"), image.Pt(150, 103)},
	}
	for name, tt := range complete {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := plugin.Run(t, readFile(t, tt.file))
			if got.Exit != 0 {
				t.Fatalf("exit %d; stderr: %s", got.Exit, got.Stderr)
			}
			config, err := jpeg.DecodeConfig(bytes.NewReader(got.Stdout))
			if err != nil || image.Pt(config.Width, config.Height) != tt.size {
				t.Errorf("%d x %d pixels (%v), want %v", config.Width, config.Height, err, tt.size)
			}
		})
	}

	t.Run("OKHost", func(t *testing.T) {
		t.Parallel()
		onHost(t, plugin)
	})

	photo := readFile(t, "photos/dogs.jpg")
	failed := map[string]struct {
		input  []byte
		stderr string
	}{
		"ErrCutShort": {photo[:len(photo)/2], "the jpeg picture is cut short"},
		"ErrTooLarge": {bomb(100_000, 100_000), "100000 x 100000 pixels: at most 50 megapixels"},
		"ErrNoPhoto":  {[]byte("hello"), "not a picture"},
	}
	for name, tt := range failed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := plugin.Run(t, tt.input)
			if got.Exit != 1 || len(got.Stdout) != 0 || !strings.Contains(got.Stderr, tt.stderr) {
				t.Errorf("exit %d, stdout of %d bytes, stderr %q; want 1, nothing and %q in it",
					got.Exit, len(got.Stdout), got.Stderr, tt.stderr)
			}
		})
	}
}

// onHost holds that a host shows how far the task is, and gives it the manifest's setting.
func onHost(t *testing.T, plugin *exampletest.Plugin) {
	redis := queuetest.Start(t).URL()
	client, err := queue.New(redis, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	id, err := client.Queue("thumbnails").Enqueue(t.Context(), readFile(t, "photos/fig.jpg"), queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plugin.Quern.Start(t, redis, plugin.Install(t, `size: "320"`, `size: "64"`))
	task, err := client.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := jpeg.DecodeConfig(bytes.NewReader(task.Result)); err != nil || config.Width != 64 {
		t.Errorf("a picture %d wide (%v), want 64: %+v", config.Width, err, task.Failure())
	}
	if task.Progress != 0.95 || task.Message != "encoding" {
		t.Errorf("progress %v %q", task.Progress, task.Message)
	}
}
