package main

import (
	"image"
	"image/color"
	"math"
	"testing"

	"golang.org/x/image/draw"
)

// TestShrink holds that the shortcut is not to be seen: of a picture with waves of every length, the
// thumbnail by way of shrink looks like the one without, however chroma is subsampled.
func TestShrink(t *testing.T) {
	t.Parallel()
	for _, ratio := range []image.YCbCrSubsampleRatio{
		image.YCbCrSubsampleRatio444, image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420,
		image.YCbCrSubsampleRatio440, image.YCbCrSubsampleRatio411, image.YCbCrSubsampleRatio410,
	} {
		t.Run(ratio.String(), func(t *testing.T) {
			t.Parallel()
			for _, size := range []image.Point{{X: 400, Y: 300}, {X: 403, Y: 299}, {X: 1001, Y: 707}} {
				photo := waves(size, ratio)
				width, height := fit(size.X, size.Y, 64)
				small := shrink(photo, width, height)
				if small == photo || small.Rect.Dx() < 2*width || small.Rect.Dx() >= 4*width {
					t.Fatalf("%v became %v for a thumbnail %d wide", size, small.Rect.Size(), width)
				}
				got, want := image.NewRGBA(image.Rect(0, 0, width, height)), image.NewRGBA(image.Rect(0, 0, width, height))
				draw.CatmullRom.Scale(got, got.Rect, small, small.Rect, draw.Src, nil)
				draw.CatmullRom.Scale(want, want.Rect, photo, photo.Rect, draw.Src, nil)
				expectAlike(t, got, want, 3)
			}
		})
	}
}

func TestShrinkLittle(t *testing.T) {
	t.Parallel()
	photo := waves(image.Pt(200, 150), image.YCbCrSubsampleRatio420)
	if shrink(photo, 64, 48) != photo {
		t.Error("a picture little more than three times too large was shrunk")
	}
}

// waves is a picture whose luma swings the faster the further right, and whose chroma changes from
// corner to corner.
func waves(size image.Point, ratio image.YCbCrSubsampleRatio) *image.YCbCr {
	photo := image.NewYCbCr(image.Rectangle{Max: size}, ratio)
	for y := range size.Y {
		for x := range size.X {
			across, down := float64(x)/float64(size.X), float64(y)/float64(size.Y)
			photo.Y[photo.YOffset(x, y)] = uint8(128 + 100*math.Sin(60*across*across+9*down))
			photo.Cb[photo.COffset(x, y)] = uint8(60 + 140*across)
			photo.Cr[photo.COffset(x, y)] = uint8(60 + 140*down)
		}
	}
	return photo
}

func TestPrepareCMYK(t *testing.T) {
	t.Parallel()
	press := image.NewCMYK(image.Rect(0, 0, 2, 1))
	press.SetCMYK(1, 0, color.CMYK{M: 255, Y: 255})
	prepared := prepare(press, 2, 1)
	if _, ok := prepared.(*image.RGBA); !ok {
		t.Fatalf("a CMYK picture became %T, for which the filter has no shortcut", prepared)
	}
	for x, want := range []color.Color{color.RGBA{255, 255, 255, 255}, color.RGBA{255, 0, 0, 255}} {
		if got := prepared.At(x, 0); got != want {
			t.Errorf("pixel %d is %v, want %v", x, got, want)
		}
	}
}
