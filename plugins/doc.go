// Package plugins keeps what a host may run in step with a directory of files: it follows changes, and swaps versions
// without a task noticing. What a manifest may ask for and a host may give is the subject of the package manifest.
//
//	DIR/NAME.wasm          serves the queue NAME of every tenant
//	DIR/NAME.yaml          its manifest, if there is one
//	DIR/TENANT/NAME.wasm   serves the queue NAME of that tenant, and beats the one above
//
// A tenant's folder is all that is read for it: modules, manifests, the files that these name. Each is looked up and opened from
// that folder ([os.Root]), so that neither a link nor a folder that changes meanwhile leads out of it. For common plugins the
// folder is DIR, in which operators write: a link from there into a tenant's folder lets that tenant decide what is read.
//
// A [Directory] scans all of it on every change event, and every second in any case. A host acquires the version that
// serves a queue, runs tasks on it and releases it:
//
//	fsnotify ─▶ watcher ─wake─┐
//	                ticker ───┤                      ┌──────── loads, side by side ─────────┐
//	                          ▼                      │                                      │
//	the files ─ scan ─▶  reconciler ── what is due ─▶│ read ─▶ known content? ─▶ compile ─▶ check
//	                          ▲                      │                       (once a digest)│
//	                          └─ version or refusal ─┴──────────────────────────────────────┘
//	                          │
//	                          ▼ publish
//	                        table ── Acquire ─▶ Version ── Run, Run, … ── Release
//	                 (never changes)        (module + manifest, counted holders;
//	                                         the last one closes the module)
//
// One goroutine, the reconciler, decides; loads run beside it, and a slow one delays no other. So do the manifests: those of a
// folder that may have changed are read in turns of its tenant, and the folder is considered when all of them are known. Acquire
// reads the table through one atomic pointer, without a lock.
//
// # The states of a file
//
// For each plugin the reconciler has one state, which is how far it is with what the directory has now. What serves is
// apart from it: the last good version serves until another one is accepted, or the file is gone.
//
//	                 wait for a scan        to be read         being read
//	files are known  idle ───────────────▶  stale ──────────▶  rereading
//	                  ▲ ▲    young files, or a pause is over       │
//	                  │ └─────────────── same content ─────────────┘
//	                  │
//	                  └─────── version or refusal ────────────────┐
//	files are new    doubtful ───────────▶  changed ──────────▶  loading
//	                  ▲      next scan      │     ▲ queues free    │
//	                  │                 taken▼     │                │
//	                  │                     blocked                │
//	                  └──────── unstable, or too young to refuse ──┘
//
// A scan that finds other files leads from each state to changed, or from rereading to loading. One that finds nothing to
// load, since a file is missing or refused at sight, leads to idle. Plugins in the second row claim their queues.
//
// # What a version is
//
// A version is the content of the two files, and of those that the manifest names: the digest of the module, that of the
// manifest and one of all granted files and of the warm input. Granted files are read whole when the plugin is loaded and
// shared by all tasks of the version; nothing of the directory is open to a guest. A missing one refuses the plugin.
//
// Times and sizes only tell whether a file needs to be read again; one that changed within the last two seconds is read
// again in any case, since the clock of a file system may tick as coarsely as that. Tenants take turns at reading and at
// compiling. Tasks that began on an old version end on it. Plugins of the same bytes share one compiled module; those with
// the same manifests and files share its instances too, each tenant's apart, until the last such version is released.
//
// A scan follows 100 ms after the last event, and 500 ms after the first, so that a file that keeps changing serves
// nevertheless. Write the manifest before the module, and write either under another name and rename it, if no state in
// between is to serve.
//
// # Who serves a queue
//
// The tenant's own plugin beats the common one. Of two plugins of the same kind the one that serves the queue keeps it, and
// of two new ones the first by name gets it. The other is refused as a whole, and loaded as soon as the queue is free.
//
// A manifest asks, the host's grants bound. A plugin serves also where a tenant's grants leave nothing of what its module
// imports: the call is denied.
//
// # Failure
//
//   - A refused file (not a module, a bad manifest, more memory than the host gives, a link that leaves the tenant's
//     folder, a pipe) changes nothing: the last good version keeps serving. The refusal is logged and counted once for each content,
//     and listed until the file is right. After start-up a file younger than half a second is not refused yet: it may be
//     half a file, or a manifest whose module follows.
//   - A file that is gone takes its plugin with it. So does a directory that is gone.
//   - A folder that cannot be listed tells nothing about its files: what was loaded keeps serving.
//   - An error that is not the file's (a full disk, a failing one) is tried again after ten seconds.
//   - Without change events (network file systems, no watches left) the scan every second finds everything.
//   - Nothing waits for the other end of a pipe, and no device is opened: the type of a file is checked first.
//
// Whoever can write to the directory decides what runs: a tenant must not be able to.
package plugins
