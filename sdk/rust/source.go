// Package rust embeds the crate quern, and has its tests: `cargo test`, and the size of a handler.
package rust

import "embed"

// Source is the crate. `quern plugin new` copies it into a new plugin.
//
//go:embed Cargo.toml README.md src macros/Cargo.toml macros/src
var Source embed.FS
