package dashboards_test

import (
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/aymanbagabas/go-udiff"

	"github.com/quern-project/quern/metrics/dashboards"
)

var update = flag.Bool("update", false, "write the dashboards anew")

// The JSON that people import is what the code says.
func TestJSON(t *testing.T) {
	t.Parallel()
	var names []string
	for _, d := range dashboards.All() {
		file := d.Name + ".json"
		names = append(names, file)
		text, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		committed, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := udiff.Unified(file, "the code", string(committed), string(text)); diff != "" {
			t.Errorf("%s is not what the code makes: run go test ./metrics/dashboards -update\n%s", file, diff)
		}
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := file.Name(); len(name) > 5 && name[len(name)-5:] == ".json" && !slices.Contains(names, name) {
			t.Errorf("no code makes %s", name)
		}
	}
}

// A panel tells its reader what it shows, in which unit and of what.
func TestPanels(t *testing.T) {
	t.Parallel()
	for _, d := range dashboards.All() {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				if p.Title == "" || p.Description == "" || p.Unit == "" && p.Kind != dashboards.Table || len(p.Queries) == 0 {
					t.Errorf("%s: %q lacks a title, description, unit or query", d.Name, p.Title)
				}
				for _, q := range p.Queries {
					if q.Legend == "" && p.Kind != dashboards.Table {
						t.Errorf("%s: %q has a query without a legend", d.Name, p.Title)
					}
				}
			}
		}
	}
}
