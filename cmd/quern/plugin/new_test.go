package plugin

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/plugins/manifest"
)

// The manifest of a new plugin shows every section that there is, in a form that can be used: without its marks a comment
// is a setting.
func TestPluginNewManifest(t *testing.T) {
	t.Parallel()
	files, err := pluginFiles("greet", "c")
	if err != nil {
		t.Fatal(err)
	}
	written := string(files["greet.yaml"])
	all := regexp.MustCompile(`(?m)^( *)# ( *[a-z_]+:)`).ReplaceAllString(written, "$1$2")
	if strings.Count(all, "\n  cpu: 10s ") != 1 || strings.Count(all, "\n  max_attempts: 5 ") != 1 {
		t.Errorf("it is not uncommented:\n%s", all)
	}
	for _, text := range []string{written, all} {
		if _, err := manifest.Parse("greet.yaml", []byte(text)); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	type keys struct {
		Properties map[string]keys `json:"properties"`
	}
	var schema keys
	if err := json.Unmarshal(manifest.Schema(), &schema); err != nil || len(schema.Properties) < 10 {
		t.Fatalf("%v: %+v", err, schema)
	}
	for key, of := range schema.Properties {
		section := regexp.MustCompile(`(?m)^` + key + `:.*\n((?: .*\n)*)`).FindString(all)
		if section == "" && key != "entry" { // that is for Extism plugins
			t.Errorf("it does not show %s", key)
		}
		for below := range of.Properties {
			if key != "config" && !regexp.MustCompile(`[ {]`+below+`: `).MatchString(section) {
				t.Errorf("it does not show %s of %s", below, key)
			}
		}
	}
}
