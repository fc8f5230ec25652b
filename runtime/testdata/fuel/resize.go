// A picture of a megapixel is made small: bilinear, in floating point.
package main

import (
	"fmt"
	"image"
	"os"
)

// resize takes each pixel of the result from the four around its place in the source.
func resize(dst, src *image.RGBA) {
	from, to := src.Bounds().Size(), dst.Bounds().Size()
	xScale, yScale := float32(from.X-1)/float32(to.X), float32(from.Y-1)/float32(to.Y)
	for y := range to.Y {
		top := int(float32(y) * yScale)
		down := float32(y)*yScale - float32(top)
		for x := range to.X {
			left := int(float32(x) * xScale)
			right := float32(x)*xScale - float32(left)
			at := src.Pix[top*src.Stride+left*4:]
			below := src.Pix[(top+1)*src.Stride+left*4:]
			put := dst.Pix[y*dst.Stride+x*4:]
			for c := range 4 {
				upper := float32(at[c])*(1-right) + float32(at[c+4])*right
				lower := float32(below[c])*(1-right) + float32(below[c+4])*right
				put[c] = uint8(upper*(1-down) + lower*down)
			}
		}
	}
}

func main() {
	var repeats int
	if _, err := fmt.Scan(&repeats); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(65)
	}
	src := image.NewRGBA(image.Rect(0, 0, 1152, 896))
	for i := range src.Pix {
		src.Pix[i] = uint8(i * 31 >> 3)
	}
	dst := image.NewRGBA(image.Rect(0, 0, 800, 600))
	sum := 0
	for range repeats {
		resize(dst, src)
		sum += int(dst.Pix[len(dst.Pix)/2])
		src.Pix[0]++
	}
	fmt.Println(sum)
}
