package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
)

// Manifest is what NAME.yaml says about the plugin NAME. Nothing is granted that it does not list.
type Manifest struct {
	// Name is the plugin's name: that of its file, without .wasm.
	Name string
	// Version is for people and for metrics; "" if the manifest does not say.
	Version string
	// Queues are those that the plugin serves, in the manifest's order. Default: the plugin's name.
	Queues []string
	// Limits are those that the manifest sets. What it leaves out is zero, and means its default.
	Limits runtime.Limits
	// Retry says how often and when a failed task is tried again. Default zero: not at all, unless the
	// task itself says so.
	Retry Retry
	// Concurrency bounds the plugin's running tasks on one host. Default 0: only the host's slots.
	Concurrency int
	// MaxRunning bounds the plugin's running tasks on all hosts together. Default 0, which is no bound.
	MaxRunning int
	// OnCrash says what becomes of a task whose host died: CrashRerun or CrashFail. Default "": the
	// manifest does not say.
	OnCrash string
	// MaxCrashes is how many hosts may die over a task before it fails, if that is less than the host's own bound
	// (default 0: that).
	MaxCrashes int
	// Dead is the queue that gets the tasks that failed for good; none of the plugin's own. Default "",
	// which is none.
	Dead string
	// Warm is the call by which a handler is warmed. Default none.
	Warm Warm
	// Config is what a handler asks for by config_get, by name. Default none.
	Config map[string]string
	// Capabilities are the plugin's grants. Default none.
	Capabilities Capabilities
	// Tests are tasks whose outcome the manifest says, in its order. Default none.
	Tests []Test
}

// Warm is the section warm of a manifest: a call without a task, after which the image is taken that every task
// of a handler begins with.
type Warm struct {
	// Input is the file with the input of that call: a path inside the folder of the manifest, with slashes. Like
	// a FileGrant it belongs to the version. "" is no such call.
	Input string

	line int // of the manifest, on which it stands
}

// Capabilities is what a plugin is granted beyond its input and its output.
type Capabilities struct {
	// Env holds environment variables; none of them begins with TASK_.
	Env map[string]string
	// Files are what a task may read, in the manifest's order.
	Files []FileGrant
	// HTTP are the hosts that a handler may send requests to.
	HTTP []egress.Grant
	// KV are the buckets that a handler may use.
	KV []KVGrant
	// Secrets are the names of those that a handler may ask for.
	Secrets []string
	// Enqueue lets a handler enqueue tasks; nil for none.
	Enqueue *EnqueueGrant
}

// Retry is the section retry of a manifest. A field that is zero is not set.
type Retry struct {
	// MaxAttempts is how many attempts a task has at most, or Unlimited. A section that does not set it
	// means Unlimited, and then has a MaxAge: it is zero only if there is no such section.
	MaxAttempts int
	// Backoff is how the delay grows from attempt to attempt: BackoffExponential or BackoffLinear.
	Backoff string
	// Base is the delay after the first attempt; Min and Max bound every delay. Where Min is set alone
	// it is at most the default of Max, 12h, and Max alone at least that of Min, 1s.
	Base, Min, Max time.Duration
	// Jitter spreads the delays at random.
	Jitter *bool
	// MaxAge is how old a task may become before it is not tried any more.
	MaxAge time.Duration
	// MaxReschedules is how often a task may ask to be run later without an attempt being counted.
	MaxReschedules int
}

// Unlimited is the MaxAttempts that is no bound.
const Unlimited = -1

// The words of Retry.Backoff and of Manifest.OnCrash.
const (
	BackoffExponential = "exponential"
	BackoffLinear      = "linear"

	CrashRerun = "rerun"
	CrashFail  = "fail"
)

// What holds for a retry that leaves them out.
const (
	shortestRetry = time.Second
	longestRetry  = 12 * time.Hour
)

// What a manifest may say at most, and at least where zero would read as "not set".
const (
	minMemory      = 64 << 10             // one page of WebAssembly
	maxPayload     = 512 << 20            // the largest value that Redis keeps
	maxLog         = 64 << 20             // of one task, in memory while it runs
	maxTimeout     = 365 * 24 * time.Hour // "no limit" is written by leaving the key out
	maxConcurrency = 65536                // far above the slots of any host
	maxRunning     = 1_000_000            // far above the slots of any fleet
	maxTries       = 1_000_000            // attempts, reschedules, crashes: more is meant to be unlimited
	maxWord        = 128                  // bytes of a name, a queue or a version
	maxQueues      = 100                  // of one plugin: each costs the host memory and series of metrics
	maxManifest    = 256 << 10            // bytes of a manifest file
	manifestSuffix = ".yaml"
	moduleSuffix   = ".wasm"
)

// DefaultManifest is what holds for a plugin that has no manifest.
func DefaultManifest(plugin string) Manifest {
	return Manifest{Name: plugin, Queues: []string{plugin}}
}

// ParseManifest reads the bytes of a manifest. The plugin's name is that of the file, name, without
// its folder and .yaml. Every problem is told at once, as a *ManifestError.
func ParseManifest(name string, data []byte) (Manifest, error) {
	d := newDecoder(name)
	m := d.document(data)
	if err := d.err(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// LoadManifest reads the manifest at path. A missing file is an error that wraps fs.ErrNotExist; the
// caller may then use DefaultManifest.
func LoadManifest(path string) (Manifest, error) {
	end, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest %q: %w", path, err)
	}
	content, err := readStable(filepath.Dir(end), filepath.Base(end), maxManifest)
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest %q: %w", path, err)
	}
	return ParseManifest(path, content.data)
}

// Suits returns nil if the manifest, whose file is path, makes sense for the module and grants what it imports, else a
// *ManifestError.
func (m Manifest) Suits(path string, info runtime.Info) error {
	problems := m.lacks(info)
	if m.Warm.Input != "" && info.Kind != runtime.Handler {
		problems = append(problems, Problem{
			Line: m.Warm.line, Field: "warm",
			What:   fmt.Sprintf("is for handlers, and the module is a %s, which starts anew for every task", info.Kind),
			Remedy: "remove it, or build the module as a handler, which exports quern_handle",
		})
	}
	return manifestError(path, problems)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// checkWord holds names, queues and versions to what Redis keys and Prometheus labels both take.
func checkWord(word string) error {
	if word == "" {
		return errors.New("is empty")
	}
	if len(word) > maxWord {
		return fmt.Errorf("has %d bytes", len(word))
	}
	for i := range len(word) {
		if word[i] < 0x21 || word[i] > 0x7e {
			return fmt.Errorf("has the byte 0x%02x", word[i])
		}
	}
	return nil
}

const wordRule = "1 to 128 printable ASCII characters without a space"

// pluginOf is the plugin's name that belongs to the manifest file.
func pluginOf(file string) string {
	return strings.TrimSuffix(filepath.Base(file), manifestSuffix)
}
