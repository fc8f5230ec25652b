// Package manifest reads manifests (NAME.yaml), which say what a plugin asks for, and the file of --grants, which says
// what a host gives. It turns bytes into checked values, and knows nothing of the plugin directory.
//
//	NAME.yaml ─── Parse ──────▶ Manifest ─────┐
//	                                          ├─ NewPermissions ─▶ Permissions of a tenant ─▶ services and limits of a task
//	--grants  ─── LoadGrants ─▶ Grants ───────┤
//	--ceiling ─── ParseCeilings ─▶ Ceilings ──┘
//
// One list of keys (keys.go, limits.go) defines both the decoder and the JSON schema. A row of the list has a key's
// name, its description in the schema, and a value that reads the key and describes its type. If the key is a number
// that hosts can bound, the row also has a limit, from which the number's ceiling follows.
//
// # Failure
//
// An *Error lists all problems of a file, each with its line, what is wrong and what would be right. After 32 problems
// no more of the file is read. Package strictyaml bounds a file's bytes, values and depth. Messages about the file of
// grants repeat nothing that may be a secret. If a task asks for something that it is not allowed to use, the error is
// a service.Denial, which names who denies it and the line to add.
package manifest
