// Package release keeps releases of plugins in a tenant's Redis. A release is what every host of the tenant is to
// serve under a plugin's name: a module, its manifest, and the files that the manifest names.
//
//	quern plugin push ─▶ [Push] ── 1 which pieces are missing? ─▶ NS_pieces
//	                            ── 2 each missing piece ────────▶ NS_piece_H
//	                            ── 3 the release ───────────────▶ NS_release_NAME, NS_releases ──▶ NS_control
//	                                                                       │
//	hosts ◀─ Store.Piece ── missing pieces ◀── Store.Serving ◀─────────────┘
//
// The bytes of a file are in pieces of at most 1 MiB. The key of a piece is its SHA-256, so releases share the pieces
// that they have in common. A piece belongs to the tenant in whose Redis it is.
//
// The bytes can also be in an artifact of an OCI registry. The release then names the artifact by its digest, and its
// files have no pieces: see package host/rollout/oci.
//
// # Order of writes
//
// The script that writes a release first checks that Redis has every piece that the release names. It then makes the
// release the one to serve. So no host sees a release whose pieces are not all there, wherever a pusher dies. A pusher
// that died has left pieces that no release names. [Store.Collect], which one host of the fleet calls each minute,
// deletes them an hour after somebody last asked for them. The script that deletes a piece checks that time once more,
// and the script that writes a release renews it, so a piece is not deleted from under a new release.
//
// # States
//
//	         push                        push or rollback
//	(none) ───────▶ serving ──────────────────────────────────▶ replaced, or rolled back
//	                   ▲                                            │
//	                   └────────────── rollback ────────────────────┘
//
// The newest [MaxKept] releases of a plugin are kept, and always the one that serves and the one to serve if that
// fails. A frozen plugin takes no push; a rollback is possible. Releases that a rollback passes are rolled back, too.
//
// A release that is pushed with a [Share] is a canary: it gets that share of the tasks beside the release that serves.
// A plugin has one canary at a time.
//
//	         push with a share               promote, or the last step ends
//	(none) ───────────────────▶ canary ──────────────────────────────────────▶ serving
//	                              │
//	                              └── halt, another push, a rollback ──▶ halted
//
// # Failure
//
// Every call may be repeated. A push of what serves already changes nothing. A piece is checked against its digest by
// everyone who reads it.
package release
