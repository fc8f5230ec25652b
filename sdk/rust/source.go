// Package rust embeds the crate quern. Its tests run `cargo test`, and check the size of a handler.
package rust

import "embed"

// Source has the files of the crate. `quern plugin new` copies them into a new plugin.
//
//go:embed Cargo.toml README.md src macros/Cargo.toml macros/src
var Source embed.FS
