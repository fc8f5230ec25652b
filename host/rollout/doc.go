// Package rollout makes a host serve the releases of its tenants: it follows which release each plugin is to serve,
// fetches the files of a new one to a folder, checks them, and gives the folder to the plugin directory, which compiles
// the module aside and swaps.
//
//	NS_control, each few seconds ─▶ Follower ── generation new? ─▶ release.Store.Serving
//	                                   │                                  │ wanted releases
//	                                   ▼                                  ▼
//	        cache/releases/DIGEST ◀─ cache.obtain ◀─ pieces ◀──────── Blobs: Redis, or an OCI registry (Fetcher)
//	                                   │ folder
//	                                   ▼
//	                   plugins.Directory.SetReleases
//
// A [Tenant] lives as long as the host; each session of the tenant runs a [Follower] of it. A folder in the cache is
// named for the digest of the release, and is complete: files are written to another folder, checked and renamed. Hosts
// on one machine can share the cache. A piece that the folder of the release before has as well is copied from there.
//
// Releases beside the one that serves take the same way: the canary, and those that pinned tasks need ([Tenant.Need]).
// The intake of a session tells the script that reserves tasks which of them this host has. The Follower also ends the
// steps of canaries.
//
// A canary is fetched beside the release that serves, and so are releases on which pinned tasks began. A [Judge] counts
// how tasks of a release on trial end, on all hosts together, and stops the release if package trial says that it is
// bad.
//
// # Failure
//
//   - A release that cannot be fetched or checked changes nothing: the one that serves keeps serving. A host that has
//     none yet takes the one before. The release is listed as refused, with its number, and tried again.
//   - A release that the plugin directory refuses is listed there. If nothing of that name serves, after a start, or
//     only one from which somebody went back to it, the host takes the one before.
//   - While Redis or the registry is away, what was fetched keeps serving.
//   - A registry that is away, refuses, stops in the middle or sends other bytes is such a failure. Fetching an
//     artifact has a deadline, which follows from its size, and delays only other artifacts of the tenant.
//   - A release that must be signed, and is not, is refused in the same way.
//   - A canary that this host cannot have runs on other hosts only. If all hosts refuse it, it is halted. If none can
//     fetch it, the release that serves runs its tasks.
//   - A folder whose files were damaged on disk is fetched again.
package rollout
