package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk"
)

// TestThumbnailFormats runs over the pictures that Go's own decoders are tested with: every way to
// subsample, progressive and interlaced ones, gray, RGB and CMYK. The thumbnail of each must look like
// that of the PNG which Go's tests compare it with.
func TestThumbnailFormats(t *testing.T) {
	t.Parallel()
	const side = 60
	folder := goTestdata(t)
	files, err := filepath.Glob(filepath.Join(folder, "video-00*"))
	if err != nil || len(files) < 30 {
		t.Fatalf("only %d pictures in %s (%v)", len(files), folder, err)
	}
	references := []string{"video-001.cmyk", "video-001.progressive.truncated", "video-001", "video-005.gray"}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run("OK "+name, func(t *testing.T) {
			t.Parallel()
			got := mustThumbnail(t, readFile(t, file), side)
			if size := got.Bounds().Size(); size != image.Pt(60, 41) {
				t.Fatalf("thumbnail of %v, want 60 x 41", size)
			}
			own := slices.IndexFunc(references, func(reference string) bool { return strings.HasPrefix(name, reference) })
			if own < 0 {
				t.Fatalf("no picture to compare %s with", name)
			}
			expectAlike(t, got, mustThumbnail(t, readFile(t, filepath.Join(folder, references[own]+".png")), side), 8)
		})
	}
}

func TestThumbnailWebP(t *testing.T) {
	t.Parallel()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/image").Output()
	if err != nil {
		t.Fatal(err)
	}
	got := mustThumbnail(t, readFile(t, filepath.Join(strings.TrimSpace(string(module)), "testdata", "video-001.lossy.webp")), 60)
	want := mustThumbnail(t, readFile(t, filepath.Join(goTestdata(t), "video-001.png")), 60)
	expectAlike(t, got, want, 15) // it was compressed hard, and WebP knows fewer colors
}

func TestThumbnailPhotos(t *testing.T) {
	t.Parallel()
	want := map[string]image.Point{
		"dandelions.jpg": {X: 320, Y: 180},
		"dogs.jpg":       {X: 213, Y: 320}, // stored on its side
		"earth.jpg":      {X: 320, Y: 160},
		"fig.jpg":        {X: 320, Y: 216},
		"mountains.jpg":  {X: 320, Y: 240}, // progressive
	}
	files, err := filepath.Glob("photos/*.jpg")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d photographs (%v), want %d", len(files), err, len(want))
	}
	for _, file := range files {
		t.Run("OK "+filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			photo := readFile(t, file)
			config, err := jpeg.DecodeConfig(bytes.NewReader(photo))
			if err != nil {
				t.Fatal(err)
			}
			if len(photo) >= 500<<10 || config.Width*config.Height < 1_000_000 {
				t.Errorf("%d x %d pixels in %d bytes: want at least a megapixel in less than 500 KiB",
					config.Width, config.Height, len(photo))
			}
			got := mustThumbnail(t, photo, defaultSize)
			if got.Bounds().Size() != want[filepath.Base(file)] {
				t.Errorf("thumbnail of %v, want %v", got.Bounds().Size(), want[filepath.Base(file)])
			}
		})
	}
}

func TestThumbnailTransparent(t *testing.T) {
	t.Parallel()
	picture := image.NewNRGBA(image.Rect(0, 0, 100, 100)) // clear, with a black square in its middle
	for i := range 20 * 20 {
		picture.Set(40+i%20, 40+i/20, color.Black)
	}
	got := mustThumbnail(t, encodePNG(t, picture), 100)
	expectGray(t, got, 5, 5, 255)
	expectGray(t, got, 50, 50, 0)
}

// TestThumbnailSmall holds that a picture smaller than the square is not blown up.
func TestThumbnailSmall(t *testing.T) {
	t.Parallel()
	for _, size := range []image.Point{{X: 1, Y: 1}, {X: 320, Y: 1}, {X: 319, Y: 320}} {
		got := mustThumbnail(t, encodePNG(t, image.NewGray(image.Rectangle{Max: size})), defaultSize)
		if got.Bounds().Size() != size {
			t.Errorf("thumbnail of %v, want %v", got.Bounds().Size(), size)
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	for in, want := range map[image.Point]image.Point{
		{X: 640, Y: 480}:   {X: 320, Y: 240},
		{X: 480, Y: 640}:   {X: 240, Y: 320},
		{X: 320, Y: 320}:   {X: 320, Y: 320},
		{X: 10, Y: 20}:     {X: 10, Y: 20},
		{X: 5000, Y: 1}:    {X: 320, Y: 1},
		{X: 1600, Y: 1082}: {X: 320, Y: 216},
	} {
		if width, height := fit(in.X, in.Y, 320); image.Pt(width, height) != want {
			t.Errorf("%v fits as %d x %d, want %v", in, width, height, want)
		}
	}
}

func TestThumbnailErrors(t *testing.T) {
	t.Parallel()
	photo := readFile(t, "photos/fig.jpg")
	progressive := readFile(t, filepath.Join(goTestdata(t), "video-001.progressive.jpeg"))
	var animation bytes.Buffer
	if err := gif.Encode(&animation, image.NewPaletted(image.Rect(0, 0, 9, 9), color.Palette{color.Black}), nil); err != nil {
		t.Fatal(err)
	}
	flipped := encodePNG(t, image.NewGray(image.Rect(0, 0, 50, 50)))
	flipped[len(flipped)-20] ^= 1
	tests := map[string]struct {
		file []byte
		want string
	}{
		"ErrEmpty":               {nil, "no picture: the task has no parameters"},
		"ErrText":                {[]byte("hello, world"), `not a picture (it begins with "hello, w"): send JPEG, PNG, GIF or WebP`},
		"ErrOneByte":             {[]byte{0xff}, `not a picture (it begins with "\xff")`},
		"ErrJPEGCutShort":        {photo[:len(photo)/2], "the jpeg picture is cut short: it ends after"},
		"ErrJPEGHeaderOnly":      {photo[:20], "the jpeg picture is cut short: it ends after 20 bytes"},
		"ErrProgressiveCutShort": {progressive[:len(progressive)/2], "the jpeg picture is cut short"},
		"ErrPNGCutShort":         {encodePNG(t, image.NewGray(image.Rect(0, 0, 50, 50)))[:60], "the png picture is cut short"},
		"ErrGIFCutShort":         {animation.Bytes()[:30], "the gif picture is cut short"},
		"ErrPNGDamaged":          {flipped, "decode png picture: "},
		"ErrTooLarge":            {bomb(100_000, 100_000), "the png picture says that it is 100000 x 100000 pixels: at most 50 megapixels are decoded"},
		"ErrJustTooLarge": {
			bomb(50_000_001, 1), "the png picture says that it is 50000001 x 1 pixels: at most 50 megapixels are decoded",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := thumbnail(tt.file, defaultSize, silent)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q in it", err, tt.want)
			}
			if _, fatal := errors.AsType[*sdk.FatalError](err); !fatal || result != nil {
				t.Errorf("error %#v with a result of %d bytes, want a fatal one with none", err, len(result))
			}
		})
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int{"1": 1, "320": 320, "640": 640, "4096": 4096} {
		if got, err := parseSize(s); got != want || err != nil {
			t.Errorf("size %q is %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "0", "-5", "4097", "big", "320px"} {
		if got, err := parseSize(s); err == nil || !strings.Contains(err.Error(), "config: size is ") {
			t.Errorf("size %q is %d, %v; want an error that names it", s, got, err)
		}
	}
}

func mustThumbnail(t *testing.T, file []byte, side int) image.Image {
	t.Helper()
	result, err := thumbnail(file, side, silent)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := jpeg.Decode(bytes.NewReader(result))
	if err != nil {
		t.Fatalf("the thumbnail is no JPEG: %v", err)
	}
	return picture
}

// expectAlike compares pictures by the mean difference of their components, of 255.
func expectAlike(t *testing.T, got, want image.Image, tolerance float64) {
	t.Helper()
	if got.Bounds() != want.Bounds() {
		t.Fatalf("a picture of %v, want %v", got.Bounds(), want.Bounds())
	}
	var sum, count float64
	for y := range got.Bounds().Dy() {
		for x := range got.Bounds().Dx() {
			r, g, b, _ := got.At(x, y).RGBA()
			wantR, wantG, wantB, _ := want.At(x, y).RGBA()
			sum += distance(r, wantR) + distance(g, wantG) + distance(b, wantB)
			count += 3
		}
	}
	if mean := sum / count; mean > tolerance {
		t.Errorf("the pictures differ by %.1f of 255 on average, more than %g", mean, tolerance)
	}
}

func distance(a, b uint32) float64 { return float64(max(a, b)-min(a, b)) / 257 }

func expectGray(t *testing.T, picture image.Image, x, y int, want uint8) {
	t.Helper()
	got := color.GrayModel.Convert(picture.At(x, y)).(color.Gray).Y
	if max(got, want)-min(got, want) > 3 {
		t.Errorf("pixel %d, %d is %d, want %d", x, y, got, want)
	}
}

func encodePNG(t *testing.T, picture image.Image) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// bomb is a PNG of a few bytes that declares a size and has no pixels.
func bomb(width, height uint32) []byte {
	header := []byte("IHDR")
	header = binary.BigEndian.AppendUint32(header, width)
	header = binary.BigEndian.AppendUint32(header, height)
	header = append(header, 8, 2, 0, 0, 0) // RGB, a byte each
	file := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d")
	file = append(file, header...)
	return binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(header))
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// goTestdata is the folder of pictures in Go's source tree.
func goTestdata(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(strings.TrimSpace(string(root)), "src", "image", "testdata")
	if _, err := os.Stat(folder); err != nil {
		t.Fatalf("this Go comes without its test pictures: install it with its source: %v", err)
	}
	return folder
}

func silent(float64, string) {}
