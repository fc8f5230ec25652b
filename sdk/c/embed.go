// Package c holds quern.h, the SDK for plugins in C: the one header that they include.
package c

import _ "embed" // for the header

// Header is quern.h.
//
//go:embed quern.h
var Header []byte
