package build

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/quern-project/quern/sdk/python"
)

// obstacle says why packages, modules or names, which are separated by spaces, do not work in a plugin, and what to use
// instead.
type obstacle struct {
	names   string
	why     string // "" if instead says enough
	instead string
	imports bool // the package can be imported, and fails only when it is used
}

// obstacleOf returns the obstacle of a name; ok is false if the table does not have it.
func obstacleOf(name string, table []obstacle) (o obstacle, ok bool) {
	i := slices.IndexFunc(table, func(o obstacle) bool { return slices.Contains(strings.Fields(o.names), name) })
	if i < 0 {
		return o, false
	}
	return table[i], true
}

// told returns why a name does not work and what to use instead, "" if the table does not have it.
func told(name string, table []obstacle) string {
	o, _ := obstacleOf(name, table)
	if o.why == "" {
		return o.instead
	}
	return o.why + ": " + o.instead
}

// requirements is the file of a source that lists packages.
const requirements = "requirements.txt"

// installed is where the engine finds packages.
const installed = "/app/site-packages"

// requirement is a line of requirements.txt, or of a file that it includes, without comments.
type requirement struct {
	text  string
	where string // its file and line
}

// pythonPackages lists well-known packages that do not work in a plugin, by their normalized names. Others are found
// when pip builds them, or when the plugin starts. distributions names the packages whose modules have other names.
// The package quern has both tables, because the engine tells the same when a handler imports such a module.
var pythonPackages, distributions = readTable()

func readTable() (obstacles []obstacle, distributions map[string]string) {
	var table struct {
		Obstacles []struct {
			Names, Why, Instead string
			Imports             bool
		}
		Distributions map[string]string
	}
	content, err := sdk.Source.ReadFile("package/src/quern/packages.json")
	if err == nil {
		err = json.Unmarshal(content, &table)
	}
	if err != nil {
		panic(fmt.Sprintf("read packages.json of the SDK for Python: %v", err)) // embedded: see TestObstacles
	}
	for _, o := range table.Obstacles {
		obstacles = append(obstacles, obstacle{names: o.Names, why: o.Why, instead: o.Instead, imports: o.Imports})
	}
	return obstacles, table.Distributions
}

var (
	separators = regexp.MustCompile(`[-_.]+`)
	// required matches a line of requirements.txt that names a package.
	required = regexp.MustCompile(`^([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:[\[<>=!~;@(]|$)`)
	// unversioned matches a requirement with an operator and nothing behind it, assigned one with a single =.
	unversioned = regexp.MustCompile(`^([A-Za-z0-9][\w.-]*(?:\[[^\]]*\])?)\s*(?:[=<>!~]=?=?)\s*(?:;.*)?$`)
	assigned    = regexp.MustCompile(`^([A-Za-z0-9][\w.-]*(?:\[[^\]]*\])?)\s*=\s*([\w.*+!-]+)\s*(?:;.*)?$`)
)

// normalized returns the name of a package as package indexes compare it.
func normalized(name string) string { return strings.ToLower(separators.ReplaceAllString(name, "-")) }

// checkRequired refuses packages that cannot work in a plugin, before pip tries to build them.
func checkRequired(lines []requirement) error {
	for _, line := range lines {
		if found := unversioned.FindStringSubmatch(line.text); found != nil {
			return because(Failed, "%s: %q names no version: write %s, or %s==VERSION", line.where, line.text, found[1],
				found[1])
		}
		if found := assigned.FindStringSubmatch(line.text); found != nil {
			return because(Failed, "%s: %q has one =: write %s==%s", line.where, line.text, found[1], found[2])
		}
		if found := required.FindStringSubmatch(line.text); found != nil {
			if known, ok := obstacleOf(normalized(found[1]), pythonPackages); ok && !known.imports {
				return because(Failed, "%s: %w", line.where, known.refuse(found[1]))
			}
		}
	}
	return nil
}

// checkInstalled refuses packages that cannot be imported, and returns a warning for each one that can be imported but
// not used. files are the installed files by their paths.
func checkInstalled(files map[string][]byte) (warnings []string, err error) {
	for _, file := range slices.Sorted(maps.Keys(files)) {
		folder := path.Base(path.Dir(file))
		if path.Base(file) != "METADATA" || path.Ext(folder) != ".dist-info" {
			continue
		}
		name, _, _ := strings.Cut(folder, "-")
		known, ok := obstacleOf(normalized(name), pythonPackages)
		switch {
		case !ok:
		case known.imports:
			warnings = append(warnings, fmt.Sprintf("%s can be imported, but %s: %s", name, known.why, known.instead))
		default:
			return nil, known.refuse(name)
		}
	}
	return warnings, nil
}

var (
	// imported matches a line of Python that imports modules: the first one, or the one that it imports names from.
	imported = regexp.MustCompile(`^\s*(?:import|from)\s+(\w+)`)
	// quoted matches texts of several lines, which are no code.
	quoted = regexp.MustCompile("(?s)\"\"\".*?\"\"\"|'''.*?'''")
	// optional matches a line below which an import need not succeed.
	optional = regexp.MustCompile(`^\s*(?:try|if .*TYPE_CHECKING.*):`)
)

// checkImports returns a warning for each import of a package that neither the folder nor requirements.txt brings, and
// that does not work in a plugin or has another name: an import within a function fails only when a task runs. files
// are the files of the plugin.
func checkImports(files map[string][]byte) (warnings []string) {
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(file) != ".py" || strings.HasPrefix(file, installed+"/") {
			continue
		}
		code := quoted.ReplaceAllStringFunc(string(files[file]), func(text string) string {
			return strings.Repeat("\n", strings.Count(text, "\n"))
		})
		before := ""
		for number, line := range strings.Split(code, "\n") {
			found := imported.FindStringSubmatch(line)
			if found != nil && !optional.MatchString(before) && !isThere(files, found[1]) {
				if remedy := remedyFor(found[1]); remedy != "" {
					warnings = append(warnings, fmt.Sprintf("%s:%d: import of %s: %s", file, number+1, found[1], remedy))
				}
			}
			before = line
		}
	}
	return warnings
}

// isThere reports whether the files of a plugin contain a module.
func isThere(files map[string][]byte, module string) bool {
	for file := range files {
		for _, folder := range []string{"/app/", installed + "/"} {
			if rest, ok := strings.CutPrefix(file, folder+module); ok && (rest == ".py" || strings.HasPrefix(rest, "/")) {
				return true
			}
		}
	}
	return false
}

// remedyFor returns what to do about a module that is not in the plugin: why its package does not work, or what the
// package is called. It returns "" for modules that the tables do not have, which may be the engine's.
func remedyFor(module string) string {
	name, other := distributions[module]
	name = cmp.Or(name, module)
	if known, ok := obstacleOf(normalized(name), pythonPackages); ok {
		return known.refuse(name).Error()
	}
	if other {
		return fmt.Sprintf("install %s by a line in %s", name, requirements)
	}
	return ""
}

func (o obstacle) refuse(name string) error {
	return because(Failed, "%s %s: %s", name, o.why, o.instead)
}

// native returns the error about packages with native code.
func native(names []string) error {
	for _, name := range names {
		if known, ok := obstacleOf(normalized(name), pythonPackages); ok {
			return known.refuse(name)
		}
	}
	return obstacle{
		why:     "has native code, which a plugin cannot load",
		instead: "remove it from " + requirements + ", or use a package or a version in pure Python",
	}.refuse(strings.Join(names, ", "))
}
