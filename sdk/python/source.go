// Package python embeds the SDK for plugins in Python, and has the tests of the engine that runs them. The engine's
// sources are in the folder engine.
package python

import "embed"

// Source has the files of the package quern, in the folder package/src. `quern plugin new` copies them next to a new
// plugin, for editors and pytest.
//
//go:embed package/src/quern/*.py package/src/quern/packages.json package/src/quern/py.typed
var Source embed.FS
