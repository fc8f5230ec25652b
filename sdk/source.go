//go:build !wasip1

package sdk

import "embed"

// Source is the SDK's own source: this package, and those below it that plugins link. `quern plugin new` puts it beside a new
// plugin, which then is built without a network. Tests are in it as well.
//
//go:embed *.go *.s fetch/*.go typed/*.go sdktest/*.go internal/guest/*.go internal/native/*.go
var Source embed.FS
