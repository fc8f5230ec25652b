package main

import (
	"bytes"
	"image"
	"image/jpeg"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/internal/exampletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
