package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// shims are what the commands of two-servers.md find in place of systemd, ssh and a user database. A server is a folder
// below $WORLD, and a sed script that leads to it what is addressed to the server's paths and ports. What a unit starts runs
// as a process of its own.
const shims = `#!/bin/bash
set -e -o pipefail
on() { # on SERVER COMMAND: runs a command on a server
	at=$1; shift
	export SERVER=$at HOME=$WORLD/$at/home
	exec bash -e -o pipefail -c "$(sed -E -f "$WORLD/$at.sed" <<<"$*")"
}
case ${0##*/} in
on) on "$@" ;;
ssh) # a tunnel leads to where the port is already
	[[ $1 = -fN ]] || on "$@" ;;
rsync)
	files=() mode=
	for word; do
		case $word in
		--chmod=F*) mode=${word#--chmod=F} ;;
		--chown=root:quern-acme) ;;
		-*) echo "rsync: unknown $word" >&2; exit 1 ;;
		*) files+=("$word") ;;
		esac
	done
	to=${files[-1]}; unset 'files[-1]'
	path=$(sed -E -f "$WORLD/${to%%:*}.sed" <<<"${to#*:}")
	path=${path:-$WORLD/${to%%:*}/home}
	cp "${files[@]}" "$path"
	if [[ $mode ]]; then chmod "$mode" "$path"; fi ;;
install)
	words=()
	while (($#)); do
		if [[ $1 = -g ]]; then shift; else words+=("$1"); fi
		shift
	done
	exec /usr/bin/install "${words[@]}" ;;
useradd | chgrp) ;;
systemctl)
	unit=${!#} run=$WORLD/$SERVER/run
	mkdir -p "$run"
	case $1 in
	daemon-reload) exit ;;
	stop | restart)
		if [[ -s $run/$unit.pid ]]; then
			kill -TERM "$(cat "$run/$unit.pid")" || true
			flock "$run/$unit.lock" true # until it has ended
		fi
		if [[ $1 = stop ]]; then exit; fi ;;
	enable) [[ $2 = --now ]] ;;
	*) echo "systemctl: unknown $1" >&2; exit 1 ;;
	esac
	case $unit in
	redis-server) command="redis-server $WORLD/$SERVER/etc/redis/redis.conf --dir $WORLD/$SERVER/var/lib/redis" ;;
	quern@acme)
		mkdir -p -m 0700 "$WORLD/$SERVER/var/cache/quern/acme" # CacheDirectory=
		command=$(sed -n 's/^ExecStart=//p' "$WORLD/$SERVER/etc/systemd/system/quern@.service" | sed 's/%i/acme/g' | sed -E -f "$WORLD/$SERVER.sed") ;;
	*) echo "systemctl: unknown unit $unit" >&2; exit 1 ;;
	esac
	rm -f "$run/$unit.pid"
	setsid flock -o "$run/$unit.lock" sh -c 'echo $$ > "$0"; exec "$@"' "$run/$unit.pid" $command >> "$run/$unit.log" 2>&1 < /dev/null &
	until [[ -s $run/$unit.pid ]]; do :; done ;;
esac
`

// place is the first line of a block of two-servers.md.
var place = regexp.MustCompile(`^# on (your machine|one|two|one and two)(, as root)?\n`)

// TestTwoServers runs every command of two-servers.md, from top to bottom: a real Redis with its users, two hosts by the
// command of their unit, the page's token. Tasks are enqueued during the upgrade, and none is lost.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"redis-server", "openssl", "flock", "setsid", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("this system lacks a tool of the page: ", err)
		}
	}
	page := string(read(t, "cmd/quern/manual/two-servers.md"))
	host := strings.Join(strings.Fields(string(regexp.MustCompile(`(?m)^ACL SETUSER acme-host on >PASSWORD (.*)$`).FindSubmatch(read(t, "sdk/queue/ACL.md"))[1])), " ")
	if !strings.Contains(page, host+" +config|get +info\n") {
		t.Errorf("the page's Redis user is not that of ACL.md: %s", host)
	}

	world, bin, desk := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, filepath.Join(bin, "shims"), shims)
	if err := os.Chmod(filepath.Join(bin, "shims"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"on", "ssh", "rsync", "install", "useradd", "chgrp", "systemctl"} {
		if err := os.Symlink("shims", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	redis, api, metrics := freePort(t), map[string]string{}, map[string]string{}
	for _, server := range []string{"one", "two"} {
		root := filepath.Join(world, server)
		api[server], metrics[server] = freePort(t), freePort(t)
		for _, dir := range []string{"home", "etc/redis", "etc/systemd/system", "usr/local/bin", "var/lib/redis", "var/cache/quern"} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write(t, filepath.Join(root, "etc/redis/redis.conf"), "save \"\"\n")
		write(t, filepath.Join(world, server+".sed"), fmt.Sprintf("s#(^|[^a-z])(/etc/(quern|redis|systemd)|/srv/quern|/usr/local/bin|/var/cache/quern)#\\1%s\\2#g\n"+
			"s#10\\.0\\.0\\.1#127.0.0.1#g\ns#\\b6379\\b#%s#g\ns#\\b9464\\b#%s#g\ns#\\b9465\\b#%s#g\n", root, redis, metrics[server], api[server]))
	}
	local := strings.NewReplacer("10.0.0.1:6379", "127.0.0.1:"+redis, "127.0.0.1:9465", "127.0.0.1:"+api["one"])
	file, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	newer := string(file) + "a newer one"
	for name, content := range map[string]string{
		"quern": string(file), "new/quern": newer, "quern@.service": tenantUnit(t),
		"sleep/sleep.yaml": "name: sleep\n", "sleep/sleep.wasm": string(runtimetest.Sleep(t)),
	} {
		write(t, filepath.Join(desk, name), content)
	}

	u := newUser(t, "")
	env := append(os.Environ(), "WORLD="+world, "PATH="+strings.Join([]string{bin, filepath.Dir(program), os.Getenv("PATH")}, string(os.PathListSeparator)))
	for _, variables := range []map[string]string{u.env, goEnvironment(t)} {
		for name, value := range variables {
			env = append(env, name+"="+value)
		}
	}
	logs := func() (all string) {
		files, _ := filepath.Glob(filepath.Join(world, "*/run/*.log"))
		for _, file := range files {
			all += file + "\n" + string(content(t, file))
		}
		return all
	}
	run := func(ctx context.Context, where, commands string) string {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "on"), where, commands)
		if where == "your machine" {
			cmd = exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", local.Replace(commands))
		}
		cmd.Dir, cmd.Env = desk, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			if said := logs(); strings.Contains(said, `confine "require":`) {
				t.Skip("this system lacks what confines a host: " + said)
			}
			t.Fatalf("%s\n%v\n%s\n%s", commands, err, out, logs())
		}
		return string(out)
	}
	t.Cleanup(func() {
		for _, unit := range []string{"one quern@acme", "two quern@acme", "one redis-server"} {
			server, unit, _ := strings.Cut(unit, " ")
			run(context.Background(), server, "systemctl stop "+unit)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	pids := func() (all []string) {
		for _, server := range []string{"one", "two"} {
			all = append(all, string(content(t, filepath.Join(world, server, "run/quern@acme.pid"))))
		}
		return all
	}

	blocks, before, client, complete := 0, []string{}, (*queue.Client)(nil), atomic.Int64{}
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		match := place.FindStringSubmatch(block[2])
		if block[1] != "sh" || match == nil {
			t.Fatalf("a block that begins without \"# on\" a server is not run:\n%s", block[2])
		}
		blocks++
		if match[1] != "your machine" {
			for server := range strings.SplitSeq(match[1], " and ") {
				run(ctx, server, block[2])
			}
			continue
		}
		stop := func() {}
		if strings.Contains(block[2], "new/quern") {
			before, client = pids(), connected(t, strings.TrimSpace(string(content(t, filepath.Join(world, "one/etc/quern/acme/redis")))))
			run(ctx, "your machine", "sh deploy.sh sleep") // tasks that run while their host is stopped
			stop = producing(ctx, t, client, &complete)
		}
		run(ctx, match[1], block[2])
		stop()
	}
	if blocks < 10 || complete.Load() < 10 {
		t.Fatalf("%d blocks, %d tasks during the upgrade\n%s", blocks, complete.Load(), logs())
	}
	for i, server := range []string{"one", "two"} {
		if pids()[i] == before[i] || string(content(t, filepath.Join(world, server, "usr/local/bin/quern"))) != newer {
			t.Errorf("%s was not upgraded", server)
		}
		if status, _ := get(t, "http://127.0.0.1:"+api[server]+"/"); status != http.StatusOK {
			t.Errorf("the page of %s: %d", server, status)
		}
		if status, _ := get(t, "http://127.0.0.1:"+api[server]+"/v1/me"); status != http.StatusUnauthorized {
			t.Errorf("the API of %s without a token: %d", server, status)
		}
	}
	nodes := run(ctx, "your machine", ". ./acme.env; quern node ls")
	if listeners := regexp.MustCompile(`(?m)^\S+~[0-9a-f]{8}_\d+ +acme +quern`).FindAllString(nodes, -1); len(listeners) != 2 {
		t.Errorf("the hosts are %s", nodes)
	}
	if _, err := connected(t, "redis://127.0.0.1:"+redis+"/0").Clock(ctx); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("Redis without a password: %v", err)
	}
	if counts, err := manage.New(client).Stats(ctx, "sleep"); err != nil || counts[0].Depth[queue.Failed] > 0 || counts[0].Depth[queue.Complete] != complete.Load() {
		t.Errorf("%+v, %v: expected %d complete tasks", counts, err, complete.Load())
	}
}

// producing enqueues tasks and waits for each, eight at a time, until stop is called. It counts those that are complete; any
// other end, and a task whose host did not give it back, is an error.
func producing(ctx context.Context, t *testing.T, client *queue.Client, complete *atomic.Int64) (stop func()) {
	t.Helper()
	var over atomic.Bool
	var producers sync.WaitGroup
	for range 8 {
		producers.Go(func() {
			for !over.Load() {
				id, err := client.Queue("sleep").Enqueue(ctx, []byte("200"), queue.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				task, err := client.Wait(ctx, id)
				if err != nil || task.Status != queue.Complete || task.Crashes > 0 {
					t.Errorf("%s: %+v, %v", id, task, err)
					return
				}
				complete.Add(1)
			}
		})
	}
	return func() {
		over.Store(true)
		producers.Wait()
	}
}

// connected is a client of the tenant acme.
func connected(t *testing.T, url string) *queue.Client {
	t.Helper()
	client, err := queue.New(url, queue.Config{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
