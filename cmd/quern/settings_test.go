package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/plugins/spelling"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// effective is what `serve --check` prints, by name; lists are joined by commas.
func effective(t *testing.T, text string) map[string]string {
	t.Helper()
	settings, list := make(map[string]string), ""
	for line := range strings.Lines(text) {
		if word, ok := strings.CutPrefix(line, "    - "); ok {
			settings[list] = strings.TrimPrefix(settings[list]+","+strings.Trim(word, "'\n"), ",")
			continue
		}
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			t.Fatalf("%q in\n%s", line, text)
		}
		value, _, _ = strings.Cut(value, " #") // the origin
		settings[name], list = strings.TrimSpace(value), name
	}
	return settings
}

func TestSettingsLayers(t *testing.T) {
	t.Parallel()
	const file = "lease: 7s\ntenants: [acme, '{beta}']\nqueues: [mail.*, '!mail.bulk', 'a,b']\nmemory: 1GiB\nconcurrency: 7\nredis: redis://file/0\ntenant: unused\n"
	tests := map[string]struct {
		file string
		env  map[string]string
		args []string
		want map[string]string
	}{
		"Defaults": {
			want: map[string]string{
				"lease": "10s", "tenants": "blueque", "queues": "[]", "memory": "75%", "redis": "redis://127.0.0.1:6379/0", "plugins": "./handlers",
				"grace": "30s", "poll": "5s", "max-timeout": "0s", "max-cpu": "0s", "log-level": "info", "log-format": "text", "http": "127.0.0.1:9464",
				"reset": "auto", "idle-unload": "5m0s", "compile-time": "3m0s", "compile-memory": "1280MiB",
			},
		},
		"File": {
			file: file,
			want: map[string]string{
				"lease": "7s", "tenants": "acme,{beta}", "queues": "mail.*,!mail.bulk,a,b", "memory": "1GiB", "concurrency": "7", "redis": "redis://file/0",
			},
		},
		"EnvironmentOverFile": {
			file: file,
			env:  map[string]string{"QUERN_LEASE": "8s", "QUERN_TENANTS": "one,two", "QUERN_MEMORY": "50%", "QUERN_MAX_TIMEOUT": "1h", "QUERN_MAX_CPU": "1.5s", "QUERN_REDIS_URL": "redis://url/0"},
			want: map[string]string{"lease": "8s", "tenants": "one,two", "memory": "50%", "max-timeout": "1h0m0s", "max-cpu": "1.5s", "concurrency": "7", "redis": "redis://url/0"},
		},
		"FlagOverEnvironment": {
			file: file,
			env:  map[string]string{"QUERN_LEASE": "8s", "QUERN_TENANTS": "one,two", "QUERN_REDIS": "redis://environment/0"},
			args: []string{"--lease", "9s", "--tenants", "three", "--tenants", "four", "--redis", "redis://flag/0"},
			want: map[string]string{"lease": "9s", "tenants": "three,four", "redis": "redis://flag/0"},
		},
		"RedisOverRedisURL": {
			env:  map[string]string{"QUERN_REDIS": "redis://one/0", "QUERN_REDIS_URL": "redis://two/0"},
			want: map[string]string{"redis": "redis://one/0"},
		},
		"RedisFlagOverRedisFileOfEnvironment": {
			env:  map[string]string{"QUERN_REDIS_FILE": "none"},
			args: []string{"--redis", "redis://flag/0"},
			want: map[string]string{"redis": "redis://flag/0", "redis-file": ""},
		},
		"RedisOfEnvironmentOverRedisFileOfFile": {
			file: "redis-file: none\n",
			env:  map[string]string{"QUERN_REDIS_URL": "redis://environment/0"},
			want: map[string]string{"redis": "redis://environment/0", "redis-file": ""},
		},
		"TenantRedis": {
			file: "tenants: [acme, beta]\ntenant-redis: ['acme=redis://a:p@one/0', 'beta=redis://two/0']\n",
			want: map[string]string{"tenant-redis": "acme=redis://a:xxxxx@one/0,beta=redis://two/0"},
		},
		"EmptyIsNotSet": {
			file: "lease:\nqueues:\nredis: ''\n",
			env:  map[string]string{"QUERN_GRACE": "", "QUERN_REDIS_URL": ""},
			want: map[string]string{"lease": "10s", "queues": "[]", "grace": "30s", "redis": "redis://127.0.0.1:6379/0"},
		},
		"Others": {
			env:  map[string]string{"QUERN_NONSENSE": "1", "QUERN_PORT": "tcp://10.0.0.1:9464", "QUERN_HELP": "true"},
			want: map[string]string{"lease": "10s"},
		},
		"NoGrace": {
			args: []string{"--grace", "0s"},
			want: map[string]string{"grace": "0s"},
		},
		"ConcurrencyOfTheMachine": {
			args: []string{"--concurrency", "0"},
			want: map[string]string{"concurrency": strconv.Itoa(max(4, 2*sandbox.GuestPlaces()))},
		},
		"ResetMode": {
			file: "reset: copy\nidle-unload: 1h\n",
			env:  map[string]string{"QUERN_RESET": "new", "QUERN_IDLE_UNLOAD": "0s"},
			want: map[string]string{"reset": "new", "idle-unload": "0s"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, "").with(tt.env)
			if tt.file != "" {
				u.env["QUERN_CONFIG"] = write(t, filepath.Join(t.TempDir(), "quern.yaml"), tt.file)
			}
			printed := checked(u, tt.args...)
			got := effective(t, printed)
			for name, want := range tt.want {
				if got[name] != want {
					t.Errorf("%s is %q, want %q", name, got[name], want)
				}
			}
			// What is printed means the same as a file.
			file := write(t, filepath.Join(t.TempDir(), "printed.yaml"), printed)
			if again := checked(newUser(t, ""), "--config", file); !maps.Equal(effective(t, again), got) {
				t.Errorf("printed:\n%s\nread again:\n%s", printed, again)
			}
		})
	}
}

// A value that cannot be is told with where it comes from, what it is, and what may be.
func TestSettingsErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file string
		env  map[string]string
		args string
		want string // FILE is the file's name
	}{
		"EnvDuration":   {env: map[string]string{"QUERN_LEASE": "ten"}, want: `QUERN_LEASE "ten": use a duration like 500ms, 10s, 1h30m or 7d`},
		"EnvNumber":     {env: map[string]string{"QUERN_CONCURRENCY": "many"}, want: `QUERN_CONCURRENCY "many": no whole number: use 1 to 10000, or 0 for 2 × cores, at least 4`},
		"Fraction":      {args: "--concurrency 1.5", want: `--concurrency "1.5": no whole number: use 1 to 10000, or 0 for 2 × cores, at least 4`},
		"EnvRange":      {env: map[string]string{"QUERN_CONCURRENCY": "-1"}, want: `QUERN_CONCURRENCY "-1": use 1 to 10000, or 0 for 2 × cores, at least 4`},
		"Number":        {args: "--concurrency many", want: `--concurrency "many": no whole number: use 1 to 10000, or 0 for 2 × cores, at least 4`},
		"ManyWebhooks":  {args: "--webhooks 8001", want: `--webhooks "8001": use 1 to 8000, or 0 for none`},
		"NoValue":       {args: "--concurrency", want: "--concurrency needs a value: see `quern serve --help`"},
		"Port":          {args: "--http :99999", want: `--http ":99999": use HOST:PORT, with port 0 for a free one`},
		"PortName":      {args: "--http :x", want: `--http ":x": use HOST:PORT, with port 0 for a free one`},
		"PortBelow0":    {args: "--http :-1", want: `--http ":-1": use HOST:PORT, with port 0 for a free one`},
		"LongLease":     {args: "--lease 2h", want: `--lease "2h": use 1s to 1h`},
		"HugeMemory":    {args: "--memory 65TiB", want: `--memory "65TiB": use 1% to 100%, or a size like 512MiB or 8GiB, up to 64TiB`},
		"HugeCompile":   {args: "--compile-memory 65TiB", want: `--compile-memory "65TiB": use a size of 64MiB to 64TiB, like 1GiB`},
		"ManyAttempts":  {args: "--max-attempts 1000001", want: `--max-attempts "1000001": use 1 to 1000000, or unlimited`},
		"Secrets":       {args: "--secrets none", want: `--secrets "none": not a readable folder: name the one with TENANT/NAME`},
		"EnvNetworks":   {env: map[string]string{"QUERN_ALLOW_NETWORKS": "10.0.0.0"}, want: `QUERN_ALLOW_NETWORKS "10.0.0.0": use an address and its bits, such as 10.0.0.0/8`},
		"Proxy":         {args: "--proxy proxy:3128", want: `--proxy: has no scheme that is known: begin its URL with http:// or https://`},
		"ProxyURL":      {args: "--proxy ht%tp://", want: `--proxy: use a URL such as http://proxy.example.com:3128`},
		"PluginsFile":   {args: "--plugins settings_test.go", want: `--plugins "settings_test.go": not a directory: name a folder that this user may read`},
		"PluginsBelow":  {args: "--plugins settings_test.go/x", want: `--plugins "settings_test.go/x": not a directory: name a folder that this user may read`},
		"EnvMemory":     {env: map[string]string{"QUERN_MEMORY": "0B"}, want: `QUERN_MEMORY "0B": use 1% to 100%, or a size like 512MiB or 8GiB, up to 64TiB`},
		"EnvChoice":     {env: map[string]string{"QUERN_LOG_FORMAT": "xml"}, want: `QUERN_LOG_FORMAT "xml": use one of text, json`},
		"EnvReset":      {env: map[string]string{"QUERN_RESET": "fast"}, want: `QUERN_RESET "fast": use auto, scan, pagemap, copy or new`},
		"EnvTenants":    {env: map[string]string{"QUERN_TENANTS": "a,B_c"}, want: `QUERN_TENANTS "[a,B_c]": use 1 to 32 of a-z 0-9 and - for each, or such a word in braces`},
		"EnvRedis":      {env: map[string]string{"QUERN_REDIS_URL": "localhost"}, want: `QUERN_REDIS_URL: Redis URL: it has no scheme that is known: write redis://HOST:PORT/DB, or the same with rediss:// for TLS, or unix://PATH`},
		"EnvRedisFile":  {env: map[string]string{"QUERN_REDIS_FILE": "none"}, want: `QUERN_REDIS_FILE: open none: no such file or directory: name a file with the URL of Redis`},
		"EnvConfig":     {env: map[string]string{"QUERN_CONFIG": "none"}, want: `configuration "none": no such file or directory: name a YAML file with --config or QUERN_CONFIG, or none`},
		"FileDuration":  {file: "lease: 10\n", want: `FILE: lease "10": use a duration like 500ms, 10s, 1h30m or 7d`},
		"FileIdle":      {file: "idle-unload: never\n", want: `FILE: idle-unload "never": use a duration like 500ms, 10s, 1h30m or 7d`},
		"FileCompile":   {file: "compile-memory: 1MiB\n", want: `FILE: compile-memory "1MiB": use a size of 64MiB to 64TiB, like 1GiB`},
		"EnvCompile":    {env: map[string]string{"QUERN_COMPILE_TIME": "10ms"}, want: `QUERN_COMPILE_TIME "10ms": use 1s to 30m`},
		"FileLeast":     {file: "poll: 1ms\n", want: `FILE: poll "1ms": use at least 10ms`},
		"FileList":      {file: "http: [a, b]\n", want: `FILE: http "[a b]": use one value`},
		"FileMap":       {file: "queues: {mail: yes}\n", want: `FILE: queues "map[mail:yes]": use a value, or a list where there may be several`},
		"FileTag":       {file: "queues:\n  - '*'\n  - !mail\n", want: `FILE: queues "[* ]": a word of the list is empty: in YAML, write one that begins with ! in quotes ("!mail")`},
		"FileGlob":      {file: "queues: ['[']\n", want: `FILE: queues "[[]": use names or globs like mail.*, with ! before those to exclude`},
		"FileUnknown":   {file: "queus: [mail]\n", want: `FILE: unknown setting "queus": did you mean queues?`},
		"FileVariable":  {file: "QUERN_LEASE: 10s\n", want: `FILE: unknown setting "QUERN_LEASE": use one of admin, admin-ca, admin-cert, admin-key, allow-networks, base-path, cache, `},
		"FileUnderline": {file: "log_level: debug\n", want: `FILE: unknown setting "log_level": did you mean log-level?`},
		"FileCheck":     {file: "check: true\n", want: `FILE: unknown setting "check": use one of admin, admin-ca, `},
		"FileBoth":      {file: "redis: redis://a/0\nredis-file: b\n", want: `both FILE: redis and FILE: redis-file are set: leave one of them out`},
		"FileSyntax":    {file: "a: b: c\n", want: `configuration "FILE": line 1: is not YAML: mapping values are not allowed in this context: write it as "key: value" lines: write each setting as NAME: VALUE on a line of its own`},
		"FileAlias":     {file: "a: &a [b]\nqueues: *a\n", want: `configuration "FILE": line 1: has an anchor (&), for which aliases would stand: write the value out wherever it is needed, and a text that begins with & in quotes: write each setting as NAME: VALUE on a line of its own`},
		"FileNoMap":     {file: "- lease\n", want: `configuration "FILE": yaml: unmarshal errors: line 1: cannot unmarshal !!seq into map[string]interface {}: write each setting as NAME: VALUE on a line of its own`},
		"EnvTenant":     {env: map[string]string{"QUERN_TENANT_REDIS": "acme=redis://ada:s3cret@host/0"}, want: `QUERN_TENANT_REDIS "acme=redis://ada:xxxxx@host/0": the host serves no such tenant: write TENANT=URL (a comma in a URL as %2C), with one of blueque`},
		"EnvNoTenant":   {env: map[string]string{"QUERN_TENANT_REDIS": "redis://ada:s3cret@host/0"}, want: `QUERN_TENANT_REDIS "xxxxx": the host serves no such tenant: write TENANT=URL (a comma in a URL as %2C), with one of blueque`},
		"EnvTwice":      {env: map[string]string{"QUERN_TENANT_REDIS": "blueque=redis://a/0,blueque=redis://b/0"}, want: `QUERN_TENANT_REDIS "blueque=redis://b/0": the tenant has a URL already: leave one of them out`},
		"EnvNoURL":      {env: map[string]string{"QUERN_TENANT_REDIS": "blueque="}, want: `QUERN_TENANT_REDIS: tenant blueque: Redis URL: it has no scheme that is known: write redis://HOST:PORT/DB, or the same with rediss:// for TLS, or unix://PATH`},
		"EnvComma":      {env: map[string]string{"QUERN_TENANT_REDIS": "blueque=redis://ada:s3cret,b=c@host/0"}, want: `QUERN_TENANT_REDIS "xxxxx": the host serves no such tenant: write TENANT=URL (a comma in a URL as %2C), with one of blueque`},
		"FileTenant":    {file: "tenant-redis: {blueque: 'redis://ada:s3cret@host/0'}\n", want: `FILE: tenant-redis "xxxxx": use a value, or a list where there may be several`},
		"EnvTenantFile": {env: map[string]string{"QUERN_TENANT_REDIS_FILE": "blueque=none"}, want: `QUERN_TENANT_REDIS_FILE "blueque=none": open none: no such file or directory: name a file with the URL of Redis`},
		"EnvFileTwice":  {env: map[string]string{"QUERN_TENANT_REDIS": "blueque=redis://a/0", "QUERN_TENANT_REDIS_FILE": "blueque=x"}, want: `QUERN_TENANT_REDIS_FILE "blueque=x": the tenant has a URL already: leave one of them out`},
		"FilePassword":  {file: "redis: 'redis://ada:s3/cret@host/0'\n", want: `FILE: redis: Redis URL: it has a /, ? or # in its password or user: write redis://USER:PASSWORD@HOST:PORT/DB, and as %XX what is neither letter nor digit in user and password`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, "").with(tt.env)
			if tt.file != "" {
				u.env["QUERN_CONFIG"] = write(t, filepath.Join(t.TempDir(), "quern.yaml"), tt.file)
			}
			r := u.run(append([]string{"serve", "--check"}, strings.Fields(tt.args)...)...)
			got := strings.ReplaceAll(r.stderr, u.env["QUERN_CONFIG"], "FILE")
			if tt.file == "" {
				got = r.stderr
			}
			if r.status != exitUsage || r.stdout != "" || !strings.HasPrefix(got, "quern: "+tt.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("exit %d: %s\nwant: quern: %s", r.status, got, tt.want)
			}
		})
	}
}

// A plugin directory may be made later, which is said.
func TestCheckWithoutPlugins(t *testing.T) {
	t.Parallel()
	r := newUser(t, "").run("serve", "--check", "--plugins", "./none")
	if r.stdout == "" || !strings.Contains(r.stderr, "the plugin directory does not exist: make it, or name another with --plugins: dir=./none") {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
}

// A host that serves only releases is told nothing about a plugin directory, and quern dev refuses to have none.
func TestNoPluginDirectory(t *testing.T) {
	t.Parallel()
	u := over("redis").tenant(t)
	if r := u.run("serve", "--check", "--plugins", "none"); r.status != exitDone || strings.Contains(r.stderr, "plugin directory") {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
	c := u.spawn("serve", "--plugins", "none", "--http", "127.0.0.1:0")
	c.stderr.await(t, regexp.MustCompile(`joined: `))
	if said := c.stderr.String(); strings.Contains(said, "plugin directory") {
		t.Errorf("the host says\n%s", said)
	}
	if r := u.run("dev", "--plugins", "none"); r.status != exitUsage || !strings.Contains(r.stderr, `--plugins "none": quern dev needs a plugin directory: name another, or ./none`) {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
}

func TestCheckHidesSecrets(t *testing.T) {
	t.Parallel()
	secret := "s3cret"
	file := write(t, filepath.Join(t.TempDir(), "url"), "redis://ada:"+secret+"@host:6379/0\n")
	for name, tt := range map[string]struct{ env, value, want string }{
		"Password": {"QUERN_REDIS", "redis://ada:" + secret + "@host:6379/0", "redis: redis://ada:xxxxx@host:6379/0\n"},
		"Sentinel": {"QUERN_REDIS", "redis://host:26379/0?master_name=m&password=" + secret, "redis: redis://host:26379/0?master_name=m&password=xxxxx\n"},
		"Proxy":    {"QUERN_PROXY", "http://ada:" + secret + "@proxy:3128", "proxy: http://ada:xxxxx@proxy:3128\n"},
		"Token":    {"QUERN_PROXY", "http://" + secret + "@proxy:3128", "proxy: http://xxxxx@proxy:3128\n"},
		"File":     {"QUERN_REDIS_FILE", file, "redis-file: " + file + "\n"},
		"Tenant":   {"QUERN_TENANT_REDIS", "blueque=redis://ada:" + secret + "@host:6379/0", "- blueque=redis://ada:xxxxx@host:6379/0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newUser(t, "").with(map[string]string{tt.env: tt.value}).run("serve", "--check", "--log-level", "trace")
			if !strings.Contains(strings.ReplaceAll(r.stdout, " # "+tt.env, ""), tt.want) || strings.Contains(r.stdout+r.stderr, secret) {
				t.Errorf("exit %d: %s%s", r.status, r.stdout, r.stderr)
			}
		})
	}
}

// No command that takes a URL tells the password in it, wherever it gets the URL from, and whatever is wrong with it.
func TestNoCommandTellsAPassword(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	dir := t.TempDir()
	plugin := write(t, filepath.Join(dir, "asking.wasm"), string(runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	static const char head[] = "{\"url\":\"http://127.0.0.1:1/\"}";
	return quern_http(head, sizeof head - 1, "", 0);
}`)))
	write(t, filepath.Join(dir, "asking.yaml"), "capabilities: {http: [{host: \"http://127.0.0.1:1\", methods: [GET]}]}\ntests: [{name: a, input: \"\"}]\n")
	redis := []string{
		"redis://ada:s3cret@127.0.0.1:1/0", "redis://s3cret@127.0.0.1:1/0", "redis://ada:s3/cret@127.0.0.1:1/0", "rediss://ada:s3cret@127.0.0.1:1/0?ca=none.pem",
		"redis://ada:s3cret@127.0.0.1:1/0?no=1", "redis://127.0.0.1:1?master_name=m&password=s3cret", "redis://127.0.0.1:1?master_name=m&sentinel_password=s3cret", "ada:s3cret@127.0.0.1", "http://ada:s3cret@127.0.0.1:1",
	}
	proxies := []string{"http://ada:s3cret@127.0.0.1:1", "http://s3cret@127.0.0.1:1", "ftp://ada:s3cret@127.0.0.1:1", "ada:s3cret@127.0.0.1:1", "http://ada:s3cret@", "http://ada:s3 cret@127.0.0.1:1", "http://ada:s3%zzcret@127.0.0.1:1"}
	for _, tt := range []struct {
		flag, args string
		urls       []string
	}{
		{"proxy", "serve --check", proxies},
		{"otlp", "serve --check", proxies},
		{"proxy", "plugin run " + plugin, proxies},
		{"proxy", "plugin test " + plugin, proxies},
		{"redis", "serve --check", redis},
		{"redis", "enqueue q x", redis},
		{"redis", "kv ls", redis},
		{"redis", "kv get b k", redis},
		{"redis", "node ls", redis},
		{"redis", "node drain l", redis},
		{"redis", "node reclaim l", redis},
		{"redis", "plugin ls", redis},
		{"redis", "queue ls", redis},
		{"redis", "queue show q", redis},
		{"redis", "queue pause q", redis},
		{"redis", "queue resume q", redis},
		{"redis", "queue limit q", redis},
		{"redis", "queue purge q", redis},
		{"redis", "task show i", redis},
		{"redis", "task ls q", redis},
		{"redis", "task wait i", redis},
		{"redis", "task delete i", redis},
		{"redis", "task cancel i", redis},
		{"redis", "task retry i", redis},
		{"redis", "task logs i", redis},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, "")
			args := append(strings.Fields(tt.args), "--"+tt.flag)
			for i, url := range slices.Concat(tt.urls, []string{"list", "mapping"}) {
				var r result
				switch {
				case url == "list" || url == "mapping":
					text := map[string]string{"list": "[ada, '%s']", "mapping": "{url: '%s'}"}[url]
					config := write(t, filepath.Join(t.TempDir(), "quern.yaml"), tt.flag+": "+fmt.Sprintf(text, tt.urls[0])+"\n")
					r = u.run(append(args[:len(args)-1:len(args)-1], "--config", config)...)
				case i%2 == 0:
					r = u.run(append(args, url)...)
				default:
					r = u.with(map[string]string{"QUERN_" + strings.ToUpper(tt.flag): url}).run(args[:len(args)-1]...)
				}
				if said := r.stdout + r.stderr; said == "" || strings.Contains(said, secret) || strings.Contains(said, "s3/cret") || strings.Contains(said, "s3%zz") {
					t.Errorf("%s: exit %d: %s", url, r.status, said)
				}
			}
		})
	}
}

// The URL of a mounted secret is used, with the newline that editors leave at its end.
func TestRedisFile(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "url"), queuetest.Shared(t).URL()+"\n")
	u := newUser(t, "").with(map[string]string{"QUERN_REDIS_FILE": file, "QUERN_TENANT": queuetest.Tenant()})
	if got := u.must("queue", "ls", "-o", "json"); got != "[]\n" {
		t.Errorf("%q", got)
	}
	u.env["QUERN_REDIS_FILE"] = write(t, filepath.Join(t.TempDir(), "empty"), "\n")
	if r := u.run("queue", "ls"); r.status != exitUsage || !strings.Contains(r.stderr, "is empty: write the URL of Redis into it") {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"lease", "log-format", "log-level", "max-timeout", "memory", "redis", "redis-file", "tenant", "tenants"}
	for word, want := range map[string]string{
		"leese": "lease", "loglevel": "log-level", "Log-Level": "log-level", "max": "max-timeout", "maxtimeout": "max-timeout", "tenantss": "tenants",
		"tenat": "tenant", "memroy": "memory", "redisfile": "redis-file", "x": "", "": "", "something": "", "log": "log-format log-level",
	} {
		if got := strings.Join(spelling.Nearest(word, words), " "); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// checked is what `quern serve --check` prints; its Redis need not answer.
func checked(u *user, args ...string) string {
	u.t.Helper()
	r := u.run(append([]string{"serve", "--check"}, args...)...)
	if r.status != exitDone && (r.status != exitRefused || !strings.Contains(r.stderr, "quern: tenant ")) {
		u.t.Fatalf("exit %d: %s", r.status, r.stderr)
	}
	return r.stdout
}

// Each setting says where it comes from, and Redis is asked.
func TestCheckTellsOrigins(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	file := write(t, filepath.Join(t.TempDir(), "quern.yaml"), "queues: [mail, page]\nlease: 20s\n")
	printed := u.with(map[string]string{"QUERN_GRACE": "7s"}).must("serve", "--check", "--config", file, "--concurrency", "3")
	for _, want := range []string{
		"concurrency: 3 # --concurrency\n", "grace: 7s # QUERN_GRACE\n", "lease: 20s # " + file + ": lease\n",
		"queues: # " + file + ": queues\n    - mail\n    - page\n", "poll: 5s # default\n", "redis: " + u.env["QUERN_REDIS_URL"] + " # QUERN_REDIS_URL\n",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is missing in\n%s", want, printed)
		}
	}
	r := newUser(t, "").run("serve", "--check", "--redis", "redis://127.0.0.1:1/0")
	if r.status != exitRefused || !strings.Contains(r.stderr, "tenant blueque: ") || !strings.Contains(r.stderr, "connection refused") || r.stdout == "" {
		t.Errorf("without Redis: %+v", r)
	}
}

// A flag that a command does not use is neither shown nor taken.
func TestUnusedFlags(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	for _, command := range []string{"plugin new", "plugin build", "version"} {
		words := strings.Fields(command)
		if help := u.must(append(words, "--help")...); strings.Contains(help, "--redis") {
			t.Errorf("help of %s: %s", command, help)
		}
		if r := u.run(append(words, "--redis", "redis://127.0.0.1:1/0")...); command == "version" && (r.status != exitUsage || !strings.Contains(r.stderr, "version needs no Redis")) {
			t.Errorf("%s: %+v", command, r)
		}
	}
	for _, command := range []string{"serve", "dev"} {
		_, grouped, ok := strings.Cut(u.must(command, "--help"), "Log, metrics and traces:\n")
		_, others, also := strings.Cut(grouped, "Other flags:\n")
		others, _, _ = strings.Cut(others, "Global Flags:")
		if !ok || !also || strings.Count(others, "--") > 2 { // --help and --check
			t.Errorf("help of %s: flags without a group: %s", command, others)
		}
	}
}
