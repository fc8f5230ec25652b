package plugins

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// configured is a handler that answers with what it was configured with at its start, and in the task.
const configured = `#include "quern.h"
static char text[64];
static int32_t size;
__attribute__((constructor)) static void start(void) {
  size = quern_config_get("size", 4);
  quern_result_read(0, text, sizeof text);
}
QUERN_HANDLER int handle(void) {
  quern_output_write(text, size);
  quern_output_write(" ", 1);
  size = quern_config_get("size", 4);
  quern_result_read(0, text, sizeof text);
  return quern_output_write(text, size);
}`

// A tenant's own config is there at the start of its instances, and in no other tenant's.
func TestConfigOfATenant(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{Tenants: []string{"acme", "zebra"}, Grants: hostGrants(t, "acme: {config: {size: large}}\nzebra: {}")}, func(dir string) {
		write(t, dir+"/a.wasm", runtimetest.BuildCHandler(t, configured))
		write(t, dir+"/a.yaml", []byte("config: {size: small}"))
	})
	for range 2 {
		for tenant, want := range map[string]string{"acme": "large large", "zebra": "small small"} {
			if got := f.runs(tenant, "a"); got != want {
				t.Errorf("%s: %q, want %q", tenant, got, want)
			}
		}
	}
}

// What a host takes away is told when a plugin is loaded, for each tenant, and shown; the plugin serves.
func TestGrantsAreTold(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{Tenants: []string{"acme", "zebra"}, Grants: hostGrants(t, "acme: {capabilities: {kv: [{bucket: seen}]}}\nzebra: {}")}, func(dir string) {
		write(t, dir+"/a.wasm", runtimetest.BuildCHandler(t, configured))
		write(t, dir+"/a.yaml", []byte("capabilities: {kv: [{bucket: seen, access: rw}], secrets: [api_key]}"))
	})
	const told = `the host's grants leave a plugin less than its manifest asks for: plugin=a tenant=acme capabilities=["kv", "secrets"] grants="\"acme\" in /etc/quern/grants.yaml"`
	if logs := f.logs.String(); !strings.Contains(logs, told) || strings.Contains(logs, "tenant=zebra") {
		t.Errorf("log:\n%s", logs)
	}
	status, _ := f.status("", "a", StateServing)
	for tenant, want := range map[string]string{"acme": "kv seen r", "zebra": "kv seen rw, quota 10MiB|secrets api_key", "other": ""} {
		var granted *manifest.Granted
		if p := status.Permissions[tenant]; p != nil {
			granted = p.Granted()
		}
		if got := strings.Join(granted.Lines(), "|"); got != want {
			t.Errorf("%s: %q, want %q", tenant, got, want)
		}
	}
}

// The files of tests are no part of a version: they need not be on a host.
func TestFilesOfTestsAreNoPartOfAVersion(t *testing.T) {
	t.Parallel()
	const manifest = "tests: [{input: a.in, output: a.out}]"
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", guest(t, 1))
		write(t, dir+"/a.yaml", []byte(manifest))
	})
	v := f.Acquire("acme", "a")
	if v == nil {
		t.Fatalf("%+v", f.List())
	}
	defer v.Release()
	if v.content.files != "" || len(v.Manifest.Tests) != 1 {
		t.Errorf("files %q, tests %+v", v.content.files, v.Manifest.Tests)
	}
	files, warm, err := LoadFiles(f.path("a.yaml"), v.Manifest)
	if files != (*runtime.Files)(nil) || warm != nil || err != nil {
		t.Errorf("%v, %v, %v", files, warm, err)
	}
}

// Each tenant's tasks run within its own ceilings, the text of a limit that was reached names the place that lowered it, and
// so does the refusal of a module that they leave too little memory.
func TestCeilingsOfTenants(t *testing.T) {
	t.Parallel()
	grants := hostGrants(t, "acme: {limits: {output: 10B, memory: 1MiB}, retry: {max_attempts: 3}}\n\"{blue}\": {}")
	host, err := manifest.ParseCeilings("--ceiling", []string{"limits.output=1KiB"})
	check(t, err)
	f := setup(t, Config{Ceilings: host, Grants: grants}, func(dir string) {
		write(t, dir+"/echo.wasm", runtimetest.Echo(t))
		write(t, dir+"/echo.yaml", []byte("limits: {memory: 16MiB, output: 1MiB}\nretry: {max_attempts: unlimited}"))
		check(t, os.Mkdir(dir+"/acme", 0o700))
		write(t, dir+"/acme/large.wasm", runtimetest.BuildWAT(t, `(module (memory (export "memory") 17) (func (export "_start")))`))
	})
	const acme = `"acme" in /etc/quern/grants.yaml`
	served := map[string]*TenantVersion{}
	for _, tenant := range []string{"acme", "{blue}"} {
		served[tenant] = f.Acquire(tenant, "echo")
		defer served[tenant].Release()
	}
	for _, tt := range []struct {
		tenant, value, see string
		fits, over         int
	}{{"acme", "10B", acme, 10, 11}, {"{blue}", "1KiB", "--ceiling", 1 << 10, 1<<10 + 1}} {
		for _, size := range []int{tt.fits, tt.over} {
			got := served[tt.tenant].Run(t.Context(), runtime.Call{Input: make([]byte, size)})
			want := ""
			if size == tt.over {
				want = "output limit of " + tt.value + " exceeded on stdout: the host allows no more, see " + tt.see
			}
			if got.Message != want {
				t.Errorf("%s, %d bytes: %q, want %q", tt.tenant, size, got.Message, want)
			}
		}
	}
	if acme, blue := served["acme"].Footprint, served["{blue}"].Footprint; acme != 1<<20+16<<20+10 || blue != 16<<20+16<<20+1<<10 {
		t.Errorf("footprints %d and %d", acme, blue)
	}
	if terms := served["acme"].Permissions; terms.MostRetry != (manifest.Retry{MaxAttempts: 3}) || fmt.Sprint(terms.Lowered) !=
		`[{limits.memory 16MiB 1MiB `+acme+`} {limits.output 1MiB 10B `+acme+`} {retry.max_attempts unlimited 3 `+acme+`}]` {
		t.Errorf("%+v", terms)
	}
	for _, line := range []string{
		`plugin=echo tenant="" key=limits.output manifest=1MiB host=1KiB see=--ceiling`,
		`key=retry.max_attempts manifest=unlimited host=3 see="\"acme\" in`,
	} {
		if !strings.Contains(f.logs.String(), "the host gives a plugin less than its manifest asks for: ") || !strings.Contains(f.logs.String(), line) {
			t.Errorf("the log has no %s", line)
		}
	}
	f.awaitRefusal("acme", "large", "needs 1088KiB of memory from its start, over the memory limit of 1MiB", "the host allows no more, see "+acme)
}

// TestVersionTimeout: a task's own timeout replaces the manifest's, be it shorter or longer, under the
// host's ceiling.
func TestVersionTimeout(t *testing.T) {
	t.Parallel()
	const tick, long = 50 * time.Millisecond, time.Hour
	const ofTask = "give the task a longer timeout, if the host's ceiling allows it"
	const ofHost = "the host allows no more, see --max-timeout"
	for name, test := range map[string]struct {
		ceiling, manifest, task time.Duration
		remedy                  string
	}{
		"the task's":               {0, 0, tick, ofTask},
		"the task's, shorter":      {long, long, tick, ofTask},
		"the host's":               {tick, 0, long, ofHost},
		"the host's, over both":    {tick, long, long, ofHost},
		"the host's, over nothing": {tick, 0, 0, ofHost},
		"the manifest's":           {long, tick, 0, "raise limits.timeout in the plugin's manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := versionOf(t, runtimetest.Sleep(t), test.ceiling, test.manifest)
			got := v.Run(t.Context(), runtime.Call{Timeout: test.task, Input: []byte("3600000")})
			if got.Limit != (runtime.Limit{Name: "timeout", Value: "50ms"}) || got.Message != "timeout of 50ms exceeded while it slept or waited: let it end sooner there, or "+test.remedy {
				t.Errorf("outcome = %+v, want a timeout of 50ms: %s", got, test.remedy)
			}
		})
	}
	t.Run("the task's, longer", func(t *testing.T) {
		t.Parallel()
		v := versionOf(t, runtimetest.Sleep(t), 0, time.Millisecond)
		got := v.Run(t.Context(), runtime.Call{Timeout: patience, Input: []byte("50")})
		if got.Kind != runtime.Complete || !strings.Contains(string(got.Output), "awake") {
			t.Errorf("outcome = %+v, want complete", got)
		}
	})
}

// versionOf loads a module with a manifest under a host's ceiling.
func versionOf(t *testing.T, binary []byte, ceiling, timeout time.Duration) *TenantVersion {
	t.Helper()
	l := newLoader(newTestModules(t).engine, Config{Tenants: []string{"acme"}, Ceilings: ceilings(ceiling, 0)}.withDefaults())
	m, err := l.modules.get(t.Context(), binary)
	check(t, err)
	manifest := manifest.Default("a")
	manifest.Limits.Timeout = timeout
	r := l.load(t.Context(), loadRequest{id: id{name: "a"}, trusted: identity{module: m.digest}, manifest: manifest})
	l.modules.release(m)
	check(t, r.err)
	t.Cleanup(r.version.Release)
	return r.version.tenants["acme"]
}

// TestDeclaredIsBounded: the plugins in a tenant's folder declare together no more than the host's grants allow, and a common one
// serves a tenant without what its grants do not allow.
func TestDeclaredIsBounded(t *testing.T) {
	t.Parallel()
	grants := hostGrants(t, `acme: {capabilities: {}, schedule: {entries: 2, every: 1m}}`+"\n"+`"{blue}": {}`)
	f := setup(t, Config{Grants: grants}, func(dir string) {
		mkdir(t, dir+"/acme")
		for name, text := range map[string]string{
			"acme/a": "schedule: [{cron: '@hourly'}, {name: b, cron: '@daily'}]", "acme/b": "schedule: [{cron: '@hourly'}]",
			"acme/c": "subscribe: [{topic: orders}]", "acme/often": "schedule: [{cron: '* * * * * *'}]",
			"common": "schedule: [{cron: '* * * * * *'}]", "none": "version: 1",
		} {
			write(t, dir+"/"+name+".wasm", guest(t, 1))
			write(t, dir+"/"+name+".yaml", []byte(text))
		}
	})
	f.awaitRun("acme", "a", output(1))
	f.awaitRefusal("acme", "b", f.path("acme/b.yaml")+": schedule: has 1 entries, with which the plugins of this folder have 3, more than the 2 that the host allows: "+
		`remove some, or raise schedule.entries to 3 in "acme" in /etc/quern/grants.yaml`)
	f.awaitRefusal("acme", "c", `subscribe: has 1 entries, and the host grants the tenant none: remove them, or add subscribe: {entries: 1} to "acme" in /etc/quern/grants.yaml`)
	f.remove("acme/a.wasm")
	f.awaitRun("acme", "b", output(1))
	f.replace("acme/b.yaml", []byte("version: 2"))
	f.awaitRefusal("acme", "often", f.path("acme/often.yaml")+`: schedule[0].cron: "* * * * * *" is due 1s after the tick before, and the host allows no less than 1m0s`)

	for _, tenant := range []string{"acme", "{blue}"} {
		f.awaitRun(tenant, "common", output(1))
		v := f.Acquire(tenant, "common")
		if err := v.Permissions.Undeclared("common.yaml"); (err != nil) != (tenant == "acme") {
			t.Errorf("the common plugin for %s: %v", tenant, err)
		}
		v.Release()
	}
	if log := f.logs.String(); !strings.Contains(log, "a plugin serves a tenant without its schedules and subscriptions: plugin=common tenant=acme") {
		t.Errorf("the log does not tell of the common plugin: %s", log)
	}
}
