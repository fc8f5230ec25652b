package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// scraper is a real Prometheus process that scrapes hosts.
type scraper struct {
	t       *testing.T
	address string
	log     *output
}

// ruleTime matches a time in the rules: of a range, before an alert fires, or of an offset.
var ruleTime = regexp.MustCompile(`(\[|for: |offset )(\d+)([mh])\b`)

// startPrometheus starts Debian's Prometheus with the shipped rules on a free port, to scrape hosts as the job quern; it ends
// with the test, and with the test process, whose end its shell sees as the end of stdin. A minute of the rules is half a
// second here: alerts that take ten minutes fire and clear within the test.
func startPrometheus(t *testing.T, scraped ...string) *scraper {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("prometheus is missing (%v): run make deps", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"rules.yml", "alerts.yml"} {
		write(t, filepath.Join(dir, name), ruleTime.ReplaceAllStringFunc(string(content(t, "../../metrics/"+name)), func(text string) string {
			match := ruleTime.FindStringSubmatch(text)
			n, _ := strconv.Atoi(match[2])
			if match[3] == "h" {
				n *= 60
			}
			return fmt.Sprintf("%s%dms", match[1], 500*n)
		}))
	}
	config := write(t, filepath.Join(dir, "prometheus.yml"), fmt.Sprintf(
		"global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}\n"+
			"rule_files: [rules.yml, alerts.yml]\n"+
			"scrape_configs: [{job_name: quern, static_configs: [{targets: [%s]}]}]\n", strings.Join(scraped, ", ")))
	for range 5 { // a free port may be taken before Prometheus has it
		p := &scraper{t: t, address: freeAddress(t), log: newOutput()}
		if p.run(path, "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", p.address,
			"--enable-feature=exemplar-storage") {
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

// query asks for the values of an expression, one for each series that has a number.
func (p *scraper) query(expression string) (values []float64) {
	p.t.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	p.api("query?query="+url.QueryEscape(expression), &data)
	for _, series := range data.Result {
		text, _ := series.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			p.t.Fatalf("%s: %v", expression, err)
		}
		if !math.IsNaN(value) {
			values = append(values, value)
		}
	}
	return values
}

// await waits until an expression has one value.
func (p *scraper) await(expression string, want float64) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s is %g", expression, want), func() bool { return slices.Equal(p.query(expression), []float64{want}) })
}
