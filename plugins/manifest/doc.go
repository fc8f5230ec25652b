// Package manifest reads what a plugin asks for, NAME.yaml, and what a host gives, the file of --grants. It goes from bytes
// to a checked value, and knows no directory.
//
//	NAME.yaml ─── Parse ──────▶ Manifest ─────┐
//	                                          ├─ NewPermissions ─▶ Permissions of a tenant ─▶ services and limits of a task
//	--grants  ─── LoadGrants ─▶ Grants ───────┤
//	--ceiling ─── ParseCeilings ─▶ Ceilings ──┘
//
// One list of keys (keys.go, limits.go) makes both the decoder and the JSON schema: a row has a key's name, what the schema
// says of it, and a value that reads it and describes its type. A number that hosts may bound is a row with a limit, and has
// a ceiling by that.
//
// # Failure
//
// Every problem of a file is told at once, up to 32, as an *Error, with its line, what is wrong and what would be right; no more
// of the file is read then. What bounds a file's bytes, values and depth is in the package strictyaml. Messages about
// the file of grants repeat nothing that may be a secret. What a task asks for and may not have is a service.Denial, with who
// denies it and the line to add.
package manifest
