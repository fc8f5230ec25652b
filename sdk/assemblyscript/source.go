// Package assemblyscript embeds the npm package @quern/assemblyscript, and has its tests.
package assemblyscript

import "embed"

// Source has the files of the npm package. `quern plugin new` copies them into a new plugin.
//
//go:embed README.md package.json asconfig.json *.ts
var Source embed.FS
