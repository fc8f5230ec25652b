// Package assemblyscript embeds the npm package @quern/assemblyscript, and has its tests.
package assemblyscript

import "embed"

// Source is the package. `quern plugin new` copies it into a new plugin.
//
//go:embed README.md package.json asconfig.json *.ts
var Source embed.FS
