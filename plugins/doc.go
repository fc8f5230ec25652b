// Package plugins keeps what a host may run in step with a directory of files: it reads manifests,
// follows changes, and swaps versions without a task noticing.
//
//	DIR/NAME.wasm          serves the queue NAME of every tenant
//	DIR/NAME.yaml          its manifest, if there is one
//	DIR/TENANT/NAME.wasm   serves the queue NAME of that tenant, and beats the one above
//
// A [Directory] looks at all of it whenever the system tells of a change, and every second in any case.
// Who needs a plugin acquires the version that serves a queue, runs tasks on it and releases it:
//
//	fsnotify ─▶ watcher ─wake─┐
//	                ticker ───┤                        ┌───────── loads, side by side ─────────┐
//	                          ▼                        │                                       │
//	  the files ─ look ─▶  keeper ── what is due ─────▶│ read ─▶ same content? ─▶ compile ─▶ check
//	                          ▲                        │                        (once a digest)│
//	                          └── version or refusal ──┴───────────────────────────────────────┘
//	                          │
//	                          ▼ publish
//	                        table ── Acquire ─▶ Version ── Run, Run, … ── Release
//	                   (never changes)        (module + manifest, counted holders;
//	                                           the last one closes the module)
//
// One goroutine, the keeper, decides; loads run beside it, and a slow one delays no other. What it
// publishes is a table that never changes: Acquire reads it through one atomic pointer, without a lock.
//
// # What a version is
//
// A version is the content of the two files, and of those that the manifest names: the digest of the
// module, that of the manifest and one of all granted files and of the warm input. Granted files are read
// whole when the plugin is loaded and shared by all tasks of the version; nothing of the directory is open
// to a guest. One that is missing refuses the plugin until it is there.
//
// Times and sizes only tell whether a file needs to be read again; one that changed within the last two
// seconds is read again in any case, since the clock of a file system may tick as coarsely as that. A
// new version is read, compiled and checked aside, tenants taking turns at reading and at compiling; then
// the table is swapped. Tasks that began on the old one end on it. Plugins of the same bytes share one compiled module; those whose manifests and files
// are the same as well share its instances, each tenant's apart. The instances of a version go when the last
// such version is released.
//
// A change is looked at when no event came for 100 ms, and after 500 ms however many come, so that a
// file that keeps changing serves nevertheless. Write the manifest before the module, and write either
// under another name and rename it, if no state in between is to serve.
//
// # What a handler may do
//
// A manifest asks, the host's grants bound: what a version's tasks of a tenant may use is what both grant, and stands in
// its [Terms] for that tenant, with the configuration that its handlers see. A grant that is taken away does not refuse
// a plugin that is for all tenants, since others may have it: the call is denied. A tenant's own plugin is refused where
// nothing is left of a grant that its module imports a function of.
//
//	NAME.yaml ─── ParseManifest ──▶ Capabilities ─┐
//	                                              ├─ Under ─▶ Terms ─▶ services of a task, Status.Granted
//	--grants ──── LoadHostGrants ─▶ ceiling, ─────┘
//	FILE                            config, secrets
//
// The grants are read once; secrets are read whenever a task asks.
//
// # Who serves a queue
//
// The tenant's own plugin beats the common one. Of two plugins of the same kind the one that serves the
// queue keeps it, and of two new ones the first by name gets it. The other is refused as a whole and
// names the first; it is loaded as soon as the queue is free.
//
// # Failure
//
//   - A file that is refused (not a module, a bad manifest, more memory than the host gives, a link that
//     leaves the directory, a pipe) changes nothing: the last good version keeps serving. The refusal is
//     logged and counted once for each content, and listed until the file is right. After start-up a
//     file younger than half a second is not refused yet: it may be half a file.
//   - A file that is gone takes its plugin with it. So does a directory that is gone.
//   - A folder that cannot be listed says nothing about its files: what was loaded keeps serving.
//   - An error that is not the file's (a full disk, a failing one) is tried again after ten seconds.
//   - Without change events (network file systems, no watches left) the look every second finds
//     everything.
//   - Nothing waits for the other end of a pipe, and no device is opened: what a name stands for is
//     looked at first.
//
// Whoever can write to the directory decides what runs: a tenant must not be able to.
package plugins
