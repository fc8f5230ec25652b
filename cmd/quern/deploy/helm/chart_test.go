package helm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "copy rules, alerts and dashboards into the chart anew")

const (
	repository = "../../../.."
	examples   = "examples/*.yaml"
)

// object is a rendered object, or a part of one.
type object = map[string]any

// The values that the chart requires.
const required = "image: {repository: r}\nredis: {existingSecret: s}\n"

// values reads values, each text over those before it.
func values(t testing.TB, texts ...string) object {
	t.Helper()
	all := object{}
	for _, text := range texts {
		var some object
		if err := yaml.UnmarshalStrict([]byte(text), &some); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		all = loader.MergeMaps(all, some)
	}
	return all
}

func text(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var load = sync.OnceValues(func() (*chart.Chart, error) { return loader.LoadDir("quern") })

// render does what helm template does, and returns the objects by kind and name.
func render(t testing.TB, texts ...string) (map[string]object, []string, error) {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	options := common.ReleaseOptions{Name: "quern", Namespace: "tasks", IsInstall: true, Revision: 1}
	top, err := util.ToRenderValues(c, values(t, texts...), options, common.DefaultCapabilities)
	if err != nil {
		return nil, nil, err
	}
	files, err := engine.Render(c, top)
	if err != nil {
		return nil, nil, err
	}
	objects, documents := map[string]object{}, []string{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(path, ".yaml") {
			continue
		}
		for document := range strings.SplitSeq("\n"+files[path], "\n---") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			var one object
			if err := yaml.UnmarshalStrict([]byte(document), &one); err != nil {
				t.Fatalf("%s: %v\n%s", path, err, document)
			}
			name := fmt.Sprintf("%s/%s", one["kind"], at(one, "metadata", "name"))
			if objects[name] != nil {
				t.Errorf("%s twice", name)
			}
			objects[name], documents = one, append(documents, document)
		}
	}
	return objects, documents, nil
}

// at returns what stands below keys and indexes, nil if there is nothing.
func at(of any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := of.(object)
			of = m[step]
		case int:
			if list, _ := of.([]any); step < len(list) {
				of = list[step]
			} else {
				return nil
			}
		}
	}
	return of
}

// modules have the schemas of what the chart makes. They are data, so no go.mod requires them; Go checks their sums.
var modules = map[string]string{
	"k8s.io/kubernetes":                                  "v1.36.3",
	"github.com/kedacore/keda/v2":                        "v2.21.0",
	"github.com/prometheus-operator/prometheus-operator": "v0.94.0",
}

// download returns the folder of a module.
func download(t testing.TB, path string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", path+"@"+modules[path])
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	if failed := json.Unmarshal(out, &module); failed != nil || module.Dir == "" {
		t.Fatalf("%s: %v %v %s", cmd, err, failed, module.Error)
	}
	return module.Dir
}

// strict makes a schema refuse keys that it does not name, as kubectl does.
func strict(schema any) {
	switch s := schema.(type) {
	case object:
		_, named := s["properties"].(object)
		_, more := s["additionalProperties"]
		if named && !more && s["x-kubernetes-preserve-unknown-fields"] == nil {
			s["additionalProperties"] = false
		}
		for _, below := range s {
			strict(below)
		}
	case []any:
		for _, below := range s {
			strict(below)
		}
	}
}

// schemas writes the schemas of the modules for kubeconform.
func schemas(t testing.TB) (folder string) {
	t.Helper()
	folder = t.TempDir()
	write := func(group, version, kind string, schema object) {
		t.Helper()
		content, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, strings.ToLower(fmt.Sprintf("%s_%s_%s.json", group, version, kind)))
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	decode := func(path string) (all object) {
		t.Helper()
		if err := yaml.Unmarshal([]byte(text(t, path)), &all); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return all
	}
	kubernetes := download(t, "k8s.io/kubernetes")
	for _, group := range []string{"api__v1", "apis__apps__v1", "apis__autoscaling__v2", "apis__policy__v1", "apis__networking.k8s.io__v1"} {
		document := decode(filepath.Join(kubernetes, "api/openapi-spec/v3", group+"_openapi.json"))
		components := document["components"].(object)
		strict(components["schemas"])
		for name, schema := range components["schemas"].(object) {
			gvks, _ := at(schema, "x-kubernetes-group-version-kind").([]any)
			if len(gvks) != 1 {
				continue
			}
			version := at(gvks[0], "version").(string)
			write(cmp.Or(at(gvks[0], "group").(string), version), version, at(gvks[0], "kind").(string),
				object{"$ref": "#/components/schemas/" + name, "components": components})
		}
	}
	for module, pattern := range map[string]string{
		"github.com/kedacore/keda/v2":                        "config/crd/bases/keda.sh_*.yaml",
		"github.com/prometheus-operator/prometheus-operator": "example/prometheus-operator-crd/*.yaml",
	} {
		paths, err := filepath.Glob(filepath.Join(download(t, module), pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s %s: %v", module, pattern, err)
		}
		for _, path := range paths {
			crd := decode(path)
			group := at(crd, "spec", "group").(string)
			for _, version := range at(crd, "spec", "versions").([]any) {
				schema := at(version, "schema", "openAPIV3Schema").(object)
				strict(schema)
				at(schema, "properties").(object)["metadata"] = object{"type": "object"}
				write(group, at(version, "name").(string), at(crd, "spec", "names", "kind").(string), schema)
			}
		}
	}
	return folder
}

// conform returns what the schemas say against documents.
func conform(t testing.TB, folder string, documents []string) (wrong []string) {
	t.Helper()
	v, err := validator.New([]string{folder + "/{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json"}, validator.Opts{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range documents {
		for _, result := range v.Validate("chart.yaml", io.NopCloser(strings.NewReader(document))) {
			if result.Status != validator.Valid {
				wrong = append(wrong, fmt.Sprintf("%v %v\n%s", result.Err, result.ValidationErrors, document))
			}
		}
	}
	return wrong
}

// Each example passes Helm's lint and the schemas.
func TestExamples(t *testing.T) {
	folder := schemas(t)
	paths, err := filepath.Glob(examples)
	if err != nil || len(paths) != 3 {
		t.Fatal(paths, err)
	}
	kinds := map[any]bool{}
	for _, path := range paths {
		objects, documents, err := render(t, text(t, path))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for _, wrong := range conform(t, folder, documents) {
			t.Errorf("%s: %s", path, wrong)
		}
		for _, one := range objects {
			kinds[one["kind"]] = true
		}
		for _, message := range lint.RunAll("quern", values(t, text(t, path)), "tasks").Messages {
			if message.Severity > 1 { // 1: an icon is recommended
				t.Errorf("%s: %v", path, message)
			}
		}
	}
	for _, kind := range []string{
		"Deployment", "PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler", "ScaledObject", "TriggerAuthentication",
		"ServiceMonitor", "PrometheusRule", "ConfigMap", "Service", "ServiceAccount",
	} {
		if !kinds[kind] {
			t.Errorf("no example has a %s", kind)
		}
	}

	// The schemas refuse what is wrong.
	_, documents, err := render(t, text(t, "examples/one-tenant.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for kind, change := range map[string][2]string{
		"Deployment": {"readOnlyRootFilesystem", "readOnlyRoot"}, "ScaledObject": {"minReplicaCount", "minReplicas"},
		"PodDisruptionBudget": {"maxUnavailable: 1", "maxUnavailable: [1]"}, "PrometheusRule": {"expr:", "expression:"},
	} {
		damaged := slices.Clone(documents)
		for i, document := range damaged {
			if strings.Contains(document, "kind: "+kind+"\n") {
				damaged[i] = strings.Replace(document, change[0], change[1], 1)
			}
		}
		if len(conform(t, folder, damaged)) == 0 {
			t.Errorf("a %s with %s passes", kind, change[1])
		}
	}
}

// Wrong values are refused with a message that names them.
func TestErrValues(t *testing.T) {
	const keda = "admin: {enabled: true, tokensSecret: {name: t}}\n" +
		"host: {autoscaling: {type: keda, tokenSecret: {name: t}, queues: [{tenant: a, queue: q}]}}"
	for given, want := range map[string][]string{
		"{}":                                  {"image.repository", "README.md"},
		"{image: {repository: r}}":            {"redis.existingSecret", "kubectl create secret"},
		required + "hosts: {}":                {"hosts"},
		required + "host: {graceSeconds: 5m}": {"/host/graceSeconds", "integer"},
		required + "host: {settings: {memroy: 1GiB}}":                                                  {"/host/settings", "memroy"},
		required + "host: {settings: {confine: maybe}}":                                                {"/host/settings/confine", "require"},
		required + "host: {settings: {grace: 1m}}":                                                     {"/host/settings", "grace"},
		required + "host: {tenants: []}":                                                               {"/host/tenants", "minItems"},
		required + "fleets: {acme: {tenant: acme}}":                                                    {"/fleets/acme", "tenant"},
		required + "fleets: {Acme: {}}":                                                                {"/fleets", "Acme"},
		required + "host: {plugins: {source: s3}}":                                                     {"/host/plugins/source", "releases"},
		required + "host: {plugins: {source: volume}}":                                                 {"host.plugins.volume", "persistentVolumeClaim"},
		required + "host: {plugins: {source: configMap}}":                                              {"host.plugins.configMap"},
		required + "host: {plugins: {source: initContainer}}":                                          {"host.plugins.initContainer.image"},
		required + "admin: {enabled: true}":                                                            {"admin.tokensSecret.name", "quern admin token"},
		required + "relays: {orders: {tenants: [acme]}}":                                               {"/relays/orders", "postgres"},
		required + "host: {autoscaling: {type: hpa}}":                                                  {"host.autoscaling.queues"},
		required + "host: {autoscaling: {type: hpa, minReplicas: 0, queues: [{tenant: a, queue: q}]}}": {"minReplicas", "keda"},
		required + "host: {autoscaling: {type: keda, queues: [{tenant: a, queue: q}]}}":                {"admin.enabled"},
		required + "host: {autoscaling: {type: keda, queues: [{tenant: a, queue: a/b}]}}":              {"/host/autoscaling/queues/0/queue"},
	} {
		_, _, err := render(t, given)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, without %s", given, err, part)
			}
		}
	}
	for change, part := range map[string]string{
		"host: {autoscaling: {trigger: prometheus, minReplicas: 0}}": "Prometheus sees no task",
		"host: {autoscaling: {trigger: prometheus}}":                 "prometheusAddress",
		"host: {autoscaling: {tokenSecret: {name: \"\"}}}":           "tokenSecret.name",
		"host: {autoscaling: {minReplicas: 11}}":                     "maxReplicas 10",
	} {
		if _, _, err := render(t, required, keda, change); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, without %s", change, err, part)
		}
	}
}

// The chart has no value without a line in values.yaml, and the schema knows each.
func TestValuesAreDocumented(t *testing.T) {
	var schema object
	if err := json.Unmarshal([]byte(text(t, "quern/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	host := at(schema, "definitions", "host").(object)
	var check func(where string, schema object, value any)
	check = func(where string, schema object, value any) {
		if schema["$ref"] == "#/definitions/host" {
			schema = host
		}
		properties, _ := schema["properties"].(object)
		given, _ := value.(object)
		free := schema["additionalProperties"] != false || schema["patternProperties"] != nil
		if free || len(given) == 0 { // a comment shows its form
			return
		}
		for name, below := range properties {
			if _, ok := given[name]; !ok && name != "global" {
				t.Errorf("values.yaml lacks %s.%s", where, name)
			}
			check(where+"."+name, below.(object), given[name])
		}
	}
	check("", schema, values(t, text(t, "quern/values.yaml")))
}

// The flags of the chart are those of the program: its schema lists all that it does not set itself.
func TestFlags(t *testing.T) {
	help := text(t, filepath.Join(repository, "cmd/quern/testdata/help.golden"))
	var schema object
	if err := json.Unmarshal([]byte(text(t, "quern/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	var rendered []object
	paths, _ := filepath.Glob(examples)
	for _, path := range paths {
		objects, _, err := render(t, text(t, path), "relays: {all: {tenants: [a], postgres: {existingSecret: s}, payloadKeysSecret: s}}\n"+
			"admin: {secrets: {a: s}}")
		if err != nil {
			t.Fatal(err)
		}
		rendered = slices.AppendSeq(rendered, maps.Values(objects))
	}
	var relay any
	for _, relay = range at(schema, "properties", "relays", "patternProperties").(object) {
	}
	for command, settings := range map[string]any{
		"serve": at(schema, "definitions", "host", "properties", "settings"),
		"admin": at(schema, "properties", "admin", "properties", "settings"),
		"relay": at(relay, "properties", "settings"),
	} {
		_, page, _ := strings.Cut(help, "$ quern "+command+" --help\n")
		page, _, ok := strings.Cut(page, "\n$ ")
		flags := map[string]bool{}
		for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+) `).FindAllStringSubmatch(page, -1) {
			flags[flag[1]] = true
		}
		if !ok || len(flags) < 10 {
			t.Fatalf("%s: %v", command, flags)
		}
		known := map[string]bool{}
		for pattern := range at(settings, "patternProperties").(object) {
			for name := range strings.SplitSeq(strings.Trim(pattern, "^()$"), "|") {
				known[name] = true
			}
		}
		for name := range known {
			if !flags[name] {
				t.Errorf("quern %s has no --%s, which the schema allows", command, name)
			}
		}
		set := map[string]bool{}
		for _, one := range rendered {
			args, _ := at(one, "spec", "template", "spec", "containers", 0, "args").([]any)
			if len(args) == 0 || args[0] != command {
				continue
			}
			for _, arg := range args[1:] {
				name, _, _ := strings.Cut(strings.TrimPrefix(arg.(string), "--"), "=")
				set[name] = true
				if !flags[name] {
					t.Errorf("quern %s has no --%s, which the chart sets", command, name)
				}
			}
		}
		// config, redis and check make no sense in a pod, nor do secrets on a command line or one name for all pods.
		without := []string{"help", "check", "config", "redis", "name", "tenant-redis", "postgres"}
		for flag := range flags {
			if !set[flag] && !known[flag] && !slices.Contains(without, flag) {
				t.Errorf("neither the chart nor its schema has --%s of quern %s", flag, command)
			}
		}
	}
}

// Pods are those that a namespace with the restricted standard takes, and they end in order.
func TestPods(t *testing.T) {
	paths, _ := filepath.Glob(examples)
	for _, path := range paths {
		objects, _, err := render(t, text(t, path))
		if err != nil {
			t.Fatal(err)
		}
		for name, one := range objects {
			if one["kind"] != "Deployment" {
				continue
			}
			pod := at(one, "spec", "template", "spec").(object)
			if at(pod, "securityContext", "runAsNonRoot") != true || at(pod, "securityContext", "seccompProfile", "type") != "RuntimeDefault" ||
				pod["automountServiceAccountToken"] != false || pod["enableServiceLinks"] != false {
				t.Errorf("%s: %s: %v", path, name, pod["securityContext"])
			}
			containers, _ := pod["containers"].([]any)
			inits, _ := pod["initContainers"].([]any)
			mounted := map[any]bool{}
			for _, container := range slices.Concat(containers, inits) {
				context := at(container, "securityContext")
				if at(context, "allowPrivilegeEscalation") != false || at(context, "readOnlyRootFilesystem") != true ||
					fmt.Sprint(at(context, "capabilities", "drop")) != "[ALL]" || at(container, "resources", "limits", "memory") == nil {
					t.Errorf("%s: %s: %v", path, name, container)
				}
				for _, mount := range at(container, "volumeMounts").([]any) {
					mounted[at(mount, "name")] = true
				}
			}
			for _, volume := range pod["volumes"].([]any) {
				if !mounted[at(volume, "name")] || at(volume, "hostPath") != nil {
					t.Errorf("%s: %s: the volume %v", path, name, volume)
				}
				delete(mounted, at(volume, "name"))
			}
			if len(mounted) > 0 {
				t.Errorf("%s: %s: no volumes %v", path, name, mounted)
			}
			labels := at(one, "spec", "template", "metadata", "labels").(object)
			for label, value := range at(one, "spec", "selector", "matchLabels").(object) {
				if labels[label] != value {
					t.Errorf("%s: %s selects %s=%v of %v", path, name, label, value, labels)
				}
			}
			if args := fmt.Sprint(at(containers, 0, "args")); strings.Contains(args, "[serve ") {
				grace := regexp.MustCompile(`--grace=(\d+)s`).FindStringSubmatch(args)
				var seconds float64
				if grace != nil {
					_, _ = fmt.Sscan(grace[1], &seconds)
				}
				if ends := pod["terminationGracePeriodSeconds"]; seconds == 0 || ends != seconds+30 {
					t.Errorf("%s: %s: %v, with %v", path, name, ends, grace)
				}
				if at(one, "spec", "strategy", "rollingUpdate", "maxUnavailable") != 0.0 {
					t.Errorf("%s: %s: %v", path, name, at(one, "spec", "strategy"))
				}
			}
		}
	}
}

// What scales a Deployment is its only replica count.
func TestAutoscaling(t *testing.T) {
	scaled := func(path string, texts ...string) map[string]object {
		t.Helper()
		objects, _, err := render(t, append([]string{text(t, path)}, texts...)...)
		if err != nil {
			t.Fatal(err)
		}
		for name, one := range objects {
			if one["kind"] == "ScaledObject" || one["kind"] == "HorizontalPodAutoscaler" {
				deployment := objects["Deployment/"+at(one, "spec", "scaleTargetRef", "name").(string)]
				if deployment == nil || at(deployment, "spec", "replicas") != nil {
					t.Errorf("%s: %s scales %v", path, name, deployment)
				}
			}
		}
		return objects
	}
	one := scaled("examples/one-tenant.yaml")["ScaledObject/quern-host"]
	trigger := at(one, "spec", "triggers", 0)
	if at(one, "spec", "minReplicaCount") != 0.0 || at(trigger, "metadata", "valueLocation") != "load" ||
		at(trigger, "metadata", "targetValue") != "8" ||
		at(trigger, "metadata", "url") != "http://quern-admin.tasks.svc:9465/v1/tenants/acme/queues/mail/load" {
		t.Errorf("%v", one)
	}
	one = scaled("examples/one-tenant.yaml", "admin: {tlsSecret: tls, settings: {base-path: /quern}}")["ScaledObject/quern-host"]
	url, _ := at(one, "spec", "triggers", 0, "metadata", "url").(string)
	if !strings.HasPrefix(url, "https://quern-admin.tasks.svc:9465/quern/v1/tenants/acme/") {
		t.Error(url)
	}
	many := scaled("examples/many-tenants.yaml")
	hpa := many["HorizontalPodAutoscaler/quern-shared"]
	metrics := at(hpa, "spec", "metrics").([]any)
	if len(metrics) != 2 || at(metrics[1], "external", "metric", "selector", "matchLabels", "queue") != "report" {
		t.Errorf("%v", hpa)
	}
	if at(many["Deployment/quern-video"], "spec", "replicas") != 2.0 {
		t.Errorf("%v", many["Deployment/quern-video"])
	}
	each := scaled("examples/host-per-tenant.yaml")
	query := at(each["ScaledObject/quern-acme"], "spec", "triggers", 1, "metadata", "query")
	if query != `sum(max by (state) (quern_queue_depth{tenant="acme",queue="report",state=~"pending|reserved|started"}))` {
		t.Error(query)
	}
	if each["ScaledObject/quern-globex"] != nil || each["Deployment/quern-globex"] == nil {
		t.Error("globex is scaled")
	}
}

// compact returns a file of metrics/ as the chart has it: JSON on one line, since a release of Helm has 1 MiB at most.
func compact(t testing.TB, path string) string {
	t.Helper()
	content := text(t, path)
	if filepath.Ext(path) != ".json" {
		return content
	}
	var short bytes.Buffer
	if err := json.Compact(&short, []byte(content)); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return short.String() + "\n"
}

// The rules, alerts and dashboards of the chart are those of metrics/, copied by this test with -update.
func TestFiles(t *testing.T) {
	sources, err := filepath.Glob(filepath.Join(repository, "metrics/dashboards/*.json"))
	if err != nil || len(sources) < 5 {
		t.Fatal(sources, err)
	}
	sources = append(sources, filepath.Join(repository, "metrics/alerts.yml"), filepath.Join(repository, "metrics/rules.yml"))
	var names []string
	for _, source := range sources {
		name := filepath.Base(source)
		content, target := compact(t, source), filepath.Join("quern/files", name)
		names = append(names, name)
		if *update {
			if err := os.WriteFile(target, []byte(content), 0o644); err != nil { //nolint:gosec // as in a checkout
				t.Fatal(err)
			}
		}
		if copied, err := os.ReadFile(target); err != nil || !bytes.Equal(copied, []byte(content)) {
			t.Errorf("%s is not %s: run go test ./... -update here (%v)", target, source, err)
		}
	}
	entries, err := os.ReadDir("quern/files")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(names, entry.Name()) {
			t.Errorf("%s is in no folder of metrics", entry.Name())
		}
	}
	objects, _, err := render(t, text(t, "examples/one-tenant.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	fleet := at(objects["ConfigMap/quern-dashboard-fleet"], "data", "quern-fleet.json")
	if fleet != compact(t, filepath.Join(repository, "metrics/dashboards/fleet.json")) {
		t.Errorf("the dashboard is %v", fleet)
	}
	rules, err := yaml.Marshal(objects["PrometheusRule/quern-metrics"])
	if err != nil {
		t.Fatal(err)
	}
	alerts := strings.Count(text(t, filepath.Join(repository, "metrics/alerts.yml")), "- alert: ")
	if got := strings.Count(string(rules), "alert: "); got != alerts-1 || strings.Contains(string(rules), "QuernNoHost") ||
		!strings.Contains(string(rules), "{{ $labels.instance }}") {
		t.Errorf("%d alerts of %d", got, alerts)
	}
}
