// Package plugins loads the plugins that a host runs from a directory of files. It follows changes of the files, and
// replaces versions without interrupting tasks. Package manifest defines what a manifest can ask for and what a host
// can grant.
//
//	DIR/NAME.wasm          serves the queue NAME of every tenant
//	DIR/NAME.yaml          its manifest, if there is one
//	DIR/TENANT/NAME.wasm   serves the queue NAME of that tenant, in place of DIR/NAME.wasm
//
// The modules and manifests of a tenant, and the files that its manifests name, are read only from the tenant's folder.
// Each file is looked up and opened through that folder ([os.Root]), so that neither a link nor a folder that is
// replaced meanwhile leads out of that folder. For common plugins, which serve every tenant, the folder is DIR, in
// which operators write. A link from DIR into a tenant's folder lets that tenant decide what is read.
//
// A release ([Directory.SetReleases]) is a folder with the same files of one plugin, which somebody else has fetched
// and checked. Its plugin is listed as if its files were in the tenant's folder, unless the directory has a module of
// that name: of the tenant, or a common one that serves. So a release is compiled aside, swapped and refused as files
// are, and the last good version keeps serving.
//
// A release can have others beside it: a canary, or releases on which tasks began that keep to them. They are compiled,
// listed and refused as others are, but own no queue and declare nothing. [Directory.AcquireServing] holds them
// together with what serves.
//
// A [Directory] scans the whole directory after change events, and every second in any case. A host acquires the
// version that serves a queue, runs tasks on the version and releases it:
//
//	fsnotify ─▶ watcher ─wake─┐
//	                ticker ───┤                      ┌──────── loads, side by side ─────────┐
//	                          ▼                      │                                      │
//	the files ─ scan ─▶  reconciler ── what is due ─▶│ read ─▶ known content? ─▶ compile ─▶ check
//	                          ▲                      │                       (once a digest)│
//	                          └─ version or refusal ─┴──────────────────────────────────────┘
//	                          │
//	                          ▼ publish
//	                        table ── Acquire ─▶ TenantVersion ── Run, Run, … ── Release
//	                 (never changes)        (a Version, module + manifest, and what a tenant's tasks
//	                                         may do; the Version's last holder closes the module)
//
// One goroutine, the reconciler, makes all decisions. Each load runs in its own goroutine, so that a slow load delays
// no other. For each folder, one goroutine reads the manifests that may have changed; the goroutines of different
// tenants take turns. The reconciler considers the folder's plugins once all these manifests are read. Acquire reads
// the table through one atomic pointer, without a lock.
//
// # The states of a file
//
// The reconciler keeps one state for each plugin, which says how far it has processed the files that are in the
// directory now. The state does not say what serves: the last good version serves until another version is accepted, or
// the module's file is gone.
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
// A scan that finds different files sets the state changed, or loading while a load runs. A scan that finds nothing to
// load, since the module is missing or the files are refused before a load, sets the state idle, or rereading while a
// load runs. Plugins whose files are new (the second row) claim their queues.
//
// # What a version is
//
// A version is defined by the content of a plugin's files. Three digests identify it: of the module, of the manifest,
// and of all files that the manifest names (granted files and the warm input). Granted files are read whole when the
// plugin is loaded, and all tasks of the version share them; a guest cannot open anything in the directory. A plugin
// whose granted file is missing is refused.
//
// Times and sizes only decide whether a file is read again. A file that changed within the last two seconds is read
// again in any case, since a file system's clock may tick only every two seconds. Tenants take turns at reading files
// and at compiling modules. Tasks that began on an old version end on that version. Plugins with equal modules share
// one compiled module. If their manifests and named files are equal too, they also share the module's instances,
// separately for each tenant, until the last version with this content is released.
//
// A scan follows 100 ms after the last change event, and at most 500 ms after the first, so that a file that keeps
// changing cannot delay the scan. To keep half-finished changes from serving, write the manifest before the module, and
// write each file under another name and rename it.
//
// # Who serves a queue
//
// The tenant's own plugin takes precedence over the common plugin. If two plugins in one folder want the same queue,
// the plugin that already serves the queue keeps it; of two new plugins, the one whose name sorts first gets it. The
// other plugin is refused for all its queues, and loaded as soon as the queue is free.
//
// A manifest asks for capabilities, and the host's grants bound them. A plugin also serves tenants whose grants allow
// none of the host functions that its module imports. The calls of these functions are then denied.
//
// # Failure
//
//   - A refused file (not a module, a bad manifest, more memory than the host gives, a link that leaves the tenant's
//     folder, a pipe) changes nothing: the last good version keeps serving. The refusal is logged and counted once for
//     each content, and listed until the file is corrected. After start-up, a file younger than half a second is not
//     refused yet: it may be half written, or a manifest whose module follows.
//   - If a module's file is gone, its plugin stops serving. If the directory is gone, all plugins stop serving.
//   - A folder that cannot be listed says nothing about its files: what was loaded keeps serving.
//   - A load that fails for a reason other than the content (a full or failing disk) is retried after ten seconds.
//   - Without change events (network file systems, no watches left) the scan every second finds everything.
//   - The type of a file is checked before it is opened: no load waits for the other end of a pipe, and no device is
//     opened.
//
// Whoever can write to the directory decides what runs: tenants must not be able to write to it.
package plugins
