package main

import (
	"bytes"
	"encoding/binary"
	"image"
)

// A camera stores a picture as its sensor saw it, and stores in an Exif segment how the camera was held.
// The eight orientations are the eight ways to lay a sheet of paper on a desk: four turns, each
// with either face up.
const (
	upright         = 1
	lastOrientation = 8
)

// The parts of a file that orientation looks for.
const (
	markerStart = 0xd8 // start of the file
	markerScan  = 0xda // start of the picture's data; no Exif segment comes after it
	markerApp1  = 0xe1 // where Exif lives

	tagOrientation = 0x0112
	typeShort      = 3 // a 16-bit number
)

// orientation returns the orientation in a JPEG file, 1 to 8. If there is none, or an invalid one, it returns upright,
// because a wrong orientation is no reason to fail a task.
func orientation(file []byte) int {
	if len(file) < 2 || file[0] != 0xff || file[1] != markerStart {
		return upright
	}
	for rest := file[2:]; len(rest) >= 4 && rest[0] == 0xff; {
		marker, length := rest[1], int(binary.BigEndian.Uint16(rest[2:])) // length includes its own 2 bytes
		if marker == markerScan || length < 2 || len(rest) < 2+length {
			break
		}
		segment := rest[4 : 2+length]
		if exif, ok := bytes.CutPrefix(segment, []byte("Exif\x00\x00")); ok && marker == markerApp1 {
			return exifOrientation(exif)
		}
		rest = rest[2+length:]
	}
	return upright
}

// exifOrientation reads the first directory of an Exif block, which is a small TIFF file.
func exifOrientation(tiff []byte) int {
	const headerSize, entrySize = 8, 12
	if len(tiff) < headerSize {
		return upright
	}
	var order binary.ByteOrder = binary.LittleEndian
	if tiff[0] == 'M' {
		order = binary.BigEndian
	}
	directory := int64(order.Uint32(tiff[4:]))
	if directory+2 > int64(len(tiff)) {
		return upright
	}
	count := int(order.Uint16(tiff[directory:]))
	entries := tiff[directory+2:]
	for ; count > 0 && len(entries) >= entrySize; count-- {
		if order.Uint16(entries) == tagOrientation && order.Uint16(entries[2:]) == typeShort {
			if o := int(order.Uint16(entries[8:])); o >= upright && o <= lastOrientation {
				return o
			}
			return upright
		}
		entries = entries[entrySize:]
	}
	return upright
}

// turn returns the picture upright, given its orientation.
func turn(picture *image.RGBA, orientation int) *image.RGBA {
	if orientation == upright {
		return picture
	}
	width, height := picture.Rect.Dx(), picture.Rect.Dy()
	turned := image.NewRGBA(image.Rect(0, 0, width, height))
	if orientation >= 5 { // these lie on their side
		turned = image.NewRGBA(image.Rect(0, 0, height, width))
	}
	for y := range height {
		for x := range width {
			toX, toY := place(orientation, x, y, width-1, height-1)
			turned.SetRGBA(toX, toY, picture.RGBAAt(x, y))
		}
	}
	return turned
}

// place returns where the pixel at x, y of a stored picture belongs in the upright picture. right and bottom are the
// largest x and y of the stored picture.
func place(orientation, x, y, right, bottom int) (int, int) {
	switch orientation {
	case 2: // mirrored
		return right - x, y
	case 3: // upside down
		return right - x, bottom - y
	case 4: // upside down, mirrored
		return x, bottom - y
	case 5: // on its side, mirrored
		return y, x
	case 6: // turn clockwise to view
		return bottom - y, x
	case 7: // on its other side, mirrored
		return bottom - y, right - x
	case 8: // turn counterclockwise to view
		return y, right - x
	}
	return x, y
}
