// Package oci keeps the files of releases in OCI registries, as artifacts in the layout of the CNCF for WebAssembly. So
// oras, skopeo and other clients read and write them.
//
//	manifest ─┬─ config   application/vnd.wasm.config.v0+json
//	          ├─ layer    application/wasm                       NAME.wasm, exactly one
//	          ├─ layer    application/vnd.quern.manifest.v1+yaml NAME.yaml
//	          ├─ layer    application/vnd.quern.signature.v1     NAME.sig
//	          └─ layers   application/octet-stream               the files that NAME.yaml names, by their titles
//
// A layer has the bytes of one file, so its digest is the digest of the file in the release. A [Client] of the command
// line pushes artifacts, and resolves a tag to a digest. A Client of a host reads the artifact that a release names by
// its digest, and nothing else.
//
// # What is dialed
//
// A Client talks only to the registries of its [Config]. A registry may lead it elsewhere: to a server of tokens, or by
// a redirect to a store of blobs. The Client follows only by HTTPS, and only to addresses that handlers may reach as
// well: public ones, and the networks that the operator allows. The address is checked on the socket.
//
// # Failure
//
// A registry that does not answer within seconds, or stops in the middle of a file, is an error. So is a manifest that
// is not what its digest says or lacks a file of the release, and a blob with another size or digest. Errors contain
// neither credentials nor the queries of URLs, because redirects sign them.
package oci
