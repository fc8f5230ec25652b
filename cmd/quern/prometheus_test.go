package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// scraper is a real Prometheus process that scrapes one host.
type scraper struct {
	t       *testing.T
	address string
	log     *output
}

// startPrometheus starts Debian's Prometheus with the shipped rules on a free port; it ends with the
// test, and with the test process, whose end its shell sees as the end of stdin.
func startPrometheus(t *testing.T, scraped string) *scraper {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("prometheus is missing (%v): run make deps", err)
	}
	rules, err := filepath.Abs("../../metrics/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "prometheus.yml"), fmt.Sprintf(
		"global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}\n"+
			"rule_files: [%q]\n"+
			"scrape_configs: [{job_name: quern, static_configs: [{targets: [%q]}]}]\n", rules, scraped))
	for range 5 { // a free port may be taken before Prometheus has it
		p := &scraper{t: t, address: freeAddress(t), log: newOutput()}
		if p.run(path, "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", p.address) {
			return p
		}
		t.Logf("prometheus does not start:\n%s", p.log)
	}
	t.FailNow()
	return nil
}

// run starts the process, and tells whether it came up.
func (p *scraper) run(path string, args ...string) bool {
	p.t.Helper()
	const guard = `"$@" </dev/null & pid=$!; read _; kill $pid; wait $pid`
	cmd := exec.Command("sh", append([]string{"-c", guard, "prometheus-guard", path}, args...)...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	stop := func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}
	came := false
	eventually(p.t, "Prometheus is ready, or has said why not", func() bool {
		status, _ := get(p.t, "http://"+p.address+"/-/ready")
		came = status == http.StatusOK
		return came || strings.Contains(p.log.String(), "level=error")
	})
	if !came {
		stop()
		return false
	}
	p.t.Cleanup(stop)
	return true
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// api asks the HTTP API and returns what is under "data".
func (p *scraper) api(path string, into any) {
	p.t.Helper()
	status, body := get(p.t, "http://"+p.address+"/api/v1/"+path)
	var answer struct {
		Status string
		Data   json.RawMessage
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Status != "success" {
		p.t.Fatalf("%s: %d %v\n%s", path, status, err, body)
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		p.t.Fatalf("%s: %v\n%s", path, err, body)
	}
}

// query asks for the value of an expression of one series; false if there is none.
func (p *scraper) query(expression string) (float64, bool) {
	p.t.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	p.api("query?query="+url.QueryEscape(expression), &data)
	if len(data.Result) == 0 {
		return 0, false
	}
	text, _ := data.Result[0].Value[1].(string)
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || len(data.Result) > 1 {
		p.t.Fatalf("%s: %v %v", expression, data.Result, err)
	}
	return value, true
}

// await waits until an expression has a value between two.
func (p *scraper) await(expression string, least, most float64) {
	p.t.Helper()
	var last float64
	eventually(p.t, fmt.Sprintf("%s between %g and %g", expression, least, most), func() bool {
		value, ok := p.query(expression)
		last = value
		return ok && value >= least && value <= most
	})
	p.t.Logf("%s = %g", expression, last)
}

func TestPrometheus(t *testing.T) {
	t.Parallel()
	u := tenant(t)
	_, address := u.host(folder(t, map[string][]byte{"sleep": runtimetest.Sleep(t)}))
	p := startPrometheus(t, address)
	queue := fmt.Sprintf(`tenant=%q,queue="sleep"`, u.env["QUERN_TENANT"])
	p.await(`up{job="quern"}`, 1, 1)
	p.await(`quern_task_duration_seconds_count{`+queue+`}`, 0, 0)

	// Depths, among them that of a queue that nobody serves, and by the shipped rule.
	for range 3 {
		u.must("enqueue", "waiting")
	}
	u.must("enqueue", "sleep", "--delay", "1h")
	p.await(fmt.Sprintf(`max by (tenant, queue) (quern_queue_depth{tenant=%q,queue="waiting",state="pending"})`, u.env["QUERN_TENANT"]), 3, 3)
	p.await(`max by (tenant, queue) (quern_queue_depth{`+queue+`,state="scheduled"})`, 1, 1)
	p.await(`tenant_queue_state:quern_queue_depth:max{`+queue+`,state="scheduled"}`, 1, 1)
	p.await(`max by (tenant, queue) (quern_queue_listeners{`+queue+`})`, 1, 1)

	// Durations: tasks of 50 ms and more.
	for range 4 {
		u.must("enqueue", "sleep", "50", "--wait")
	}
	p.await(`quern_task_duration_seconds_count{`+queue+`}`, 4, 4)
	p.await(`histogram_quantile(0.5, sum by (le) (rate(quern_task_duration_seconds_bucket{`+queue+`}[1m])))`, 0.03, 10)
	p.await(`sum(quern_tasks_total{`+queue+`,outcome="complete"})`, 4, 4)

	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.api("rules", &rules)
	count := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			count++
			if rule.Health == "err" {
				t.Errorf("rule %s of %s: %s", rule.Name, group.Name, rule.LastError)
			}
		}
	}
	if count < 5 {
		t.Errorf("%d rules are loaded", count)
	}
}
