//go:build !wasip1

package sdk

import "embed"

// Source has the source files of the SDK: of this package and of the packages below it that plugins import, with their
// tests. `quern plugin new` copies them next to a new plugin, which then builds without a network.
//
//go:embed *.go *.s fetch/*.go typed/*.go sdktest/*.go internal/guest/*.go internal/native/*.go
var Source embed.FS
