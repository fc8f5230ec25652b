package main

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/gif"
	"image/jpeg"
	_ "image/png"
	"io"

	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp"

	"github.com/quern-project/quern/sdk"
)

const (
	// maxPixels is the maximum number of pixels that are decoded. A few hundred bytes can declare a picture of gigabytes,
	// so the declared size is checked before any of it is decoded.
	maxPixels = 50_000_000

	// quality is the quality of the thumbnail's JPEG, from 1 to 100.
	quality = 85
)

// thumbnail decodes a picture, scales it down until it fits into a square of the given side, turns
// it upright and encodes it as JPEG. A picture that fits already keeps its size.
//
// An error about the input is fatal. tell is called to report progress. Its fractions are the shares of time that the
// steps take for a photograph of one or two megapixels.
func thumbnail(file []byte, side int, tell func(fraction float64, doing string)) ([]byte, error) {
	tell(0, "decoding")
	picture, err := decode(file)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	tell(0.5, "scaling")
	small := turn(scale(picture, side), orientation(file))

	tell(0.95, "encoding")
	var out bytes.Buffer
	if err := jpeg.Encode(&out, small, &jpeg.Options{Quality: quality}); err != nil {
		return nil, fmt.Errorf("encode thumbnail: %w", err)
	}
	return out.Bytes(), nil
}

// decode decodes the picture, unless it is too large.
func decode(file []byte) (image.Image, error) {
	if len(file) == 0 {
		return nil, errors.New("no picture: the task has no parameters")
	}
	declared, format, err := image.DecodeConfig(bytes.NewReader(file))
	if errors.Is(err, image.ErrFormat) {
		return nil, fmt.Errorf("not a picture (it begins with %q): send JPEG, PNG, GIF or WebP", file[:min(len(file), 8)])
	}
	width, height := declared.Width, declared.Height
	switch {
	case err != nil: // image.Decode returns a better error
	case width < 1 || height < 1:
		return nil, fmt.Errorf("the %s picture says that it is %d x %d pixels: there is nothing to show", format, width,
			height)
	case int64(width)*int64(height) > maxPixels:
		return nil, fmt.Errorf("the %s picture says that it is %d x %d pixels: at most %d megapixels are decoded",
			format, width, height, maxPixels/1_000_000)
	}
	reader := &hungryReader{from: bytes.NewReader(file)}
	picture, _, err := image.Decode(reader)
	if err != nil && reader.starved {
		return nil, fmt.Errorf("the %s picture is cut short: it ends after %d bytes, in the middle of its data; send the whole file",
			format, len(file))
	}
	if err != nil {
		return nil, fmt.Errorf("decode %s picture: %w", format, err)
	}
	return picture, nil
}

// hungryReader records that a decoder wanted more bytes than the file has. Decoders report a file
// that is cut short by many errors, from an unexpected end to a lack of Huffman codes.
type hungryReader struct {
	from    io.Reader
	starved bool
}

func (r *hungryReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.starved = r.starved || err == io.EOF
	return n, err
}

// scale makes a picture that fits into the square, on white where the original is transparent.
func scale(picture image.Image, side int) *image.RGBA {
	width, height := fit(picture.Bounds().Dx(), picture.Bounds().Dy(), side)
	picture = prepare(picture, width, height)
	small := image.NewRGBA(image.Rect(0, 0, width, height))
	draw.Draw(small, small.Bounds(), image.White, image.Point{}, draw.Src)
	draw.CatmullRom.Scale(small, small.Bounds(), picture, picture.Bounds(), draw.Over, nil)
	return small
}

// fit shrinks the longer side to the limit and the other in proportion, to the nearest pixel.
func fit(width, height, limit int) (int, int) {
	longer := max(width, height)
	if longer <= limit {
		return width, height
	}
	shrink := func(n int) int { return max(1, (n*limit+longer/2)/longer) }
	return shrink(width), shrink(height)
}
