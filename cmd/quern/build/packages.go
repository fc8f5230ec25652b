package build

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
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

const (
	nativeCode = "has native code, which a plugin cannot load, and no version without"
	sockets    = "needs sockets, which a plugin does not have"
	threads    = "needs threads, processes and sockets, which a plugin does not have"

	useHTTP     = "use quern.http or urllib.request, and grant capabilities.http in the manifest"
	useKV       = "use quern.kv, and grant capabilities.kv in the manifest"
	useEnqueue  = "use quern.enqueue, and grant capabilities.enqueue in the manifest"
	useDatabase = "reach the database by an HTTP API with quern.http, or enqueue the query for a worker outside of plugins"
	useGo       = "use a plugin in Go or C"
)

// pythonPackages lists well-known packages that do not work in a plugin, by their normalized names. Others are found when
// pip builds them, or when the plugin starts.
var pythonPackages = []obstacle{
	{names: "numpy", why: nativeCode, instead: "use the module statistics, or a plugin in Go or C"},
	{names: "scipy scikit-learn matplotlib opencv-python opencv-python-headless", why: nativeCode, instead: useGo},
	{names: "pandas polars", why: nativeCode, instead: "use the modules csv, statistics and sqlite3, or a plugin in Go or C"},
	{names: "pillow", why: nativeCode, instead: "resize and convert images in a plugin in Go"},
	{names: "pydantic-core", why: nativeCode, instead: "use pydantic<2"},
	{names: "rpds-py", why: nativeCode, instead: "use jsonschema<4.18"},
	{names: "cryptography pynacl", why: nativeCode, instead: "use the modules hashlib and hmac"},
	{names: "bcrypt", why: nativeCode, instead: "use hashlib.pbkdf2_hmac"},
	{names: "lxml", why: nativeCode, instead: "use xml.etree.ElementTree"},
	{names: "orjson ujson", why: nativeCode, instead: "use the module json"},
	{names: "grpcio", why: nativeCode, instead: useHTTP},
	{names: "uvloop", why: nativeCode, instead: "use asyncio as it is"},
	{names: "gevent", why: nativeCode, instead: "use asyncio"},
	{names: "psycopg2 psycopg2-binary psycopg asyncpg mysqlclient", why: nativeCode, instead: useDatabase},
	{names: "redis", why: sockets, instead: useKV},
	{names: "aiohttp", why: sockets, instead: useHTTP},
	{names: "boto3", why: threads, instead: "sign requests with hmac and send them by quern.http"},
	{names: "celery rq", why: threads, instead: useEnqueue},
	{names: "requests httpx", why: sockets, instead: useHTTP, imports: true},
	{names: "pymysql pymongo", why: sockets, instead: useDatabase, imports: true},
	{names: "pika", why: sockets, instead: useEnqueue, imports: true},
}

// distributions names the packages whose modules have other names.
var distributions = map[string]string{
	"PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn", "nacl": "pynacl", "grpc": "grpcio", "MySQLdb": "mysqlclient",
	"yaml": "pyyaml", "dateutil": "python-dateutil", "bs4": "beautifulsoup4", "attr": "attrs", "jwt": "pyjwt", "dotenv": "python-dotenv",
}

// missingModule returns the error about a module that is neither in the plugin nor in the engine: which package it is,
// or that no package of that name works in a plugin.
func missingModule(module string) error {
	name := cmp.Or(distributions[module], module)
	if known, ok := obstacleOf(normalized(name), pythonPackages); ok {
		return known.refuse(name)
	}
	return fmt.Errorf("install %s by a line in %s", name, requirements)
}

var (
	separators = regexp.MustCompile(`[-_.]+`)
	// required matches a line of requirements.txt that names a package.
	required = regexp.MustCompile(`^([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:[\[<>=!~;@(]|$)`)
)

// normalized returns the name of a package as package indexes compare it.
func normalized(name string) string { return strings.ToLower(separators.ReplaceAllString(name, "-")) }

// checkRequired refuses packages that cannot work in a plugin, before pip tries to build them. texts are lines of
// requirements.txt.
func checkRequired(texts []string) error {
	for _, text := range texts {
		if found := required.FindStringSubmatch(text); found != nil {
			if known, ok := obstacleOf(normalized(found[1]), pythonPackages); ok && !known.imports {
				return known.refuse(found[1])
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
