package main

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"strings"
	"testing"
)

// TestTurn holds the eight orientations as the Exif standard draws them: how a camera stores the
// letter F in each.
func TestTurn(t *testing.T) {
	t.Parallel()
	const upright = "###|#..|##.|#.."
	stored := map[int]string{
		1: "###|#..|##.|#..",
		2: "###|..#|.##|..#",
		3: "..#|.##|..#|###",
		4: "#..|##.|#..|###",
		5: "####|#.#.|#...",
		6: "#...|#.#.|####",
		7: "...#|.#.#|####",
		8: "####|.#.#|...#",
	}
	for orientation, letter := range stored {
		if got := text(turn(drawing(letter), orientation)); got != upright {
			t.Errorf("orientation %d: %s became %s, want %s", orientation, letter, got, upright)
		}
	}
}

// drawing has a black pixel for every #, and text reads it back.
func drawing(letter string) *image.RGBA {
	rows := strings.Split(letter, "|")
	picture := image.NewRGBA(image.Rect(0, 0, len(rows[0]), len(rows)))
	for y, row := range rows {
		for x, c := range row {
			if c == '#' {
				picture.SetRGBA(x, y, color.RGBA{A: 255})
			}
		}
	}
	return picture
}

func text(picture *image.RGBA) string {
	var rows []string
	for y := range picture.Rect.Dy() {
		var row strings.Builder
		for x := range picture.Rect.Dx() {
			row.WriteByte(".#"[picture.RGBAAt(x, y).A/255])
		}
		rows = append(rows, row.String())
	}
	return strings.Join(rows, "|")
}

func TestOrientation(t *testing.T) {
	t.Parallel()
	little, big := exif(binary.LittleEndian, 6), exif(binary.BigEndian, 8)
	app0 := []byte("\xff\xe0\x00\x07JFIF\x00")
	tests := map[string]struct {
		file []byte
		want int
	}{
		"OKLittleEndian":     {jpegOf(little), 6},
		"OKBigEndian":        {jpegOf(big), 8},
		"OKBehindOther":      {jpegOf(app0, little), 6},
		"OKNone":             {jpegOf(app0), 1},
		"OKNotJPEG":          {[]byte("\x89PNG\r\n\x1a\n"), 1},
		"OKEmpty":            {nil, 1},
		"OKBehindScan":       {jpegOf([]byte("\xff\xda\x00\x02"), little), 1},
		"OKZero":             {jpegOf(exif(binary.LittleEndian, 0)), 1},
		"OKNine":             {jpegOf(exif(binary.LittleEndian, 9)), 1},
		"OKFarDirectory":     {jpegOf(bytes.Replace(little, []byte("*\x00\x08\x00\x00\x00"), []byte("*\x00\xff\xff\xff\xff"), 1)), 1},
		"OKShortBlock":       {jpegOf([]byte("\xff\xe1\x00\x0aExif\x00\x00")), 1},
		"OKSegmentTooLong":   {jpegOf(little)[:20], 1},
		"OKSegmentTooShort":  {jpegOf([]byte("\xff\xe1\x00\x01")), 1},
		"OKDirectoryTooLong": {jpegOf(bytes.Replace(little, []byte{1, 0, 0x12, 0x01}, []byte{9, 0, 0x13, 0x01}, 1)), 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := orientation(tt.file); got != tt.want {
				t.Errorf("orientation %d, want %d", got, tt.want)
			}
		})
	}
}

func FuzzOrientation(f *testing.F) {
	f.Add(jpegOf(exif(binary.LittleEndian, 6)))
	f.Add(jpegOf(exif(binary.BigEndian, 8)))
	f.Fuzz(func(t *testing.T, file []byte) {
		if got := orientation(file); got < 1 || got > 8 {
			t.Errorf("orientation %d, want 1 to 8", got)
		}
	})
}

func jpegOf(segments ...[]byte) []byte {
	return append([]byte{0xff, 0xd8}, bytes.Join(segments, nil)...)
}

// exif is the segment of a JPEG file that says no more than the orientation.
func exif(order binary.AppendByteOrder, orientation uint16) []byte {
	mark := "II"
	if order == binary.AppendByteOrder(binary.BigEndian) {
		mark = "MM"
	}
	block := []byte("Exif\x00\x00" + mark)
	block = order.AppendUint16(block, '*')
	block = order.AppendUint32(block, 8) // where the directory begins
	block = order.AppendUint16(block, 1) // it has one entry
	block = order.AppendUint16(block, tagOrientation)
	block = order.AppendUint16(block, typeShort)
	block = order.AppendUint32(block, 1)
	block = order.AppendUint16(block, orientation)
	block = order.AppendUint16(block, 0)
	block = order.AppendUint32(block, 0) // no further directory
	segment := binary.BigEndian.AppendUint16([]byte{0xff, markerApp1}, uint16(len(block)+2))
	return append(segment, block...)
}
