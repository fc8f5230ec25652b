// Package javascript embeds the types of @quern/sdk, and has the tests of the JavaScript engine, which run handlers
// through the real runtime. The engine's sources are in the folder engine.
package javascript

import "embed"

// Source has the files of the npm package @quern/sdk. `quern plugin new` copies them next to a new plugin.
//
//go:embed package.json index.js index.d.ts globals.d.ts testing.js testing.d.ts lib
var Source embed.FS
