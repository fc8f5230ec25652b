// Package c embeds quern.h, the SDK for plugins in C.
package c

import _ "embed" // for the header

// Header is the content of quern.h.
//
//go:embed quern.h
var Header []byte
