package build

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/quern-project/quern/plugins/spelling"
)

// Names in handlers in JavaScript that nothing defines.

// foreignNames has global names that Node or browsers have and a plugin does not. The engine tells the like of packages
// that use them, in lib/errors.js.
var foreignNames = []obstacle{
	{names: "Buffer", instead: `use Uint8Array and TextEncoder, or run npm install buffer and import { Buffer } from "buffer"`},
	{
		names: "process", instead: "a plugin has only process.env, which has what capabilities.env of the manifest " +
			"lists; throw Fatal or Failure instead of process.exit",
	},
	{names: "__dirname __filename", instead: `a plugin has no folder: import the file itself: import text from "./a.txt"`},
	{names: "setImmediate", instead: "use setTimeout"},
	{names: "Intl", instead: "a plugin has no Intl: use a package such as dayjs"},
	{names: "WebSocket EventSource", why: noSockets, instead: "use fetch"},
	{names: "XMLHttpRequest", instead: "use fetch"},
	{names: "FormData", instead: "use URLSearchParams, or build the body yourself"},
	{names: "Worker", instead: "a plugin has one thread: enqueue a task for each part (enqueue of @quern/sdk)"},
	{names: "SharedArrayBuffer Atomics", instead: "a plugin has one thread: use ArrayBuffer"},
	{names: "ReadableStream WritableStream TransformStream", instead: "a plugin has no streams: read a whole body by text, json or bytes"},
	{names: "window document localStorage sessionStorage", instead: "a plugin is no browser: keep data in kv of @quern/sdk"},
}

// engineNames lists what the engine has in globalThis. sdk/javascript has a test that compares globals.d.ts with it.
const engineNames = `AbortController AbortSignal AggregateError Array ArrayBuffer AsyncDisposableStack
BigInt BigInt64Array BigUint64Array Blob Boolean CryptoKey DOMException DataView Date DisposableStack Error
EvalError Event EventTarget FinalizationRegistry Float16Array Float32Array Float64Array Function Headers
Infinity Int16Array Int32Array Int8Array InternalError Iterator JSON Map Math NaN Number Object Promise
Proxy RangeError ReferenceError Reflect RegExp Request Response Set String SuppressedError Symbol
SyntaxError TextDecoder TextEncoder TypeError URIError URL URLSearchParams Uint16Array Uint32Array
Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet atob btoa clearInterval clearTimeout console crypto
decodeURI decodeURIComponent encodeURI encodeURIComponent escape eval fetch globalThis isFinite isNaN
parseFloat parseInt performance queueMicrotask setInterval setTimeout structuredClone undefined unescape`

// reservedNames lists the words of the language, and what it or esbuild defines in functions and modules.
const reservedNames = `break case catch class const continue debugger default delete do else enum export
extends false finally for function if import in instanceof new null return super switch this throw true try
typeof var void while with implements interface let package private protected public static yield await
async of get set as from type arguments module exports require global`

// sdkNames lists the exports of @quern/sdk.
const sdkNames = "Failure Retry Fatal QuernError SQLError log progress checkpoint kv database http enqueue publish secrets config"

var (
	identifiers = regexp.MustCompile(`[A-Za-z_$][\w$]*`)
	freeName    = regexp.MustCompile(`quern_free_([\w$]+)`)
	sdkImport   = regexp.MustCompile(`(?m)^import (?:[\w$]+, )?\{([^}]*)\} from "@quern/sdk";$`)
	bound       = fields(engineNames + " " + reservedNames)
)

func fields(text string) map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields(text) {
		all[name] = true
	}
	return all
}

// missingNames finds names that neither the engine nor the file defines, one place for each name. errors has names
// with a remedy in foreignNames, and imports that @quern/sdk does not export. A file that asks for the type of a name
// can do without it; one that declares it, or has it in globalThis, defines it.
func missingNames(text string, loader api.Loader) (errors, warnings []finding) {
	var names []string
	seen := map[string]bool{}
	for _, name := range identifiers.FindAllString(text, -1) {
		if seen[name] || bound[name] {
			continue
		}
		seen[name] = true
		given := regexp.MustCompile(`\b(typeof|globalThis\.|declare\s+(\w+\s+)+)\s*` + regexp.QuoteMeta(name) + `\b`)
		if !given.MatchString(text) {
			names = append(names, name)
		}
	}
	code := withFree(text, names, loader)
	free := map[string]bool{}
	for _, found := range freeName.FindAllStringSubmatch(code, -1) {
		free[found[1]] = true
	}
	for _, name := range names {
		if !free[name] {
			continue
		}
		at := placeOf(name, text, loader)
		if instead := told(name, foreignNames); instead != "" {
			errors = append(errors, finding{at, name + " is not defined: " + instead})
			continue
		}
		message := name + " is not defined: declare or import it; the engine has no global of that name"
		warnings = append(warnings, finding{at, message})
	}
	return append(errors, missingExports(text, code)...), warnings
}

// withFree returns the text as JavaScript, in which names that the text does not bind begin with quern_free_. esbuild
// tells them from variables, properties and types. It returns "" if the text has errors, which the build reports.
func withFree(text string, names []string, loader api.Loader) string {
	define := map[string]string{"process.env": "import.meta.env"}
	for _, name := range names {
		define[name] = "quern_free_" + name
	}
	return string(api.Transform(text, api.TransformOptions{
		Loader: loader, Define: define, Target: api.ES2023, JSX: api.JSXPreserve, LogLevel: api.LogLevelSilent,
	}).Code)
}

// placeOf returns where a text first uses a name that it does not bind: without that occurrence there is one use less.
func placeOf(name, text string, loader api.Loader) int {
	uses := func(text string) (count int) { // -1 if the text has errors
		code := withFree(text, []string{name}, loader)
		if code == "" {
			return -1
		}
		for _, found := range freeName.FindAllStringSubmatch(code, -1) {
			if found[1] == name {
				count++
			}
		}
		return count
	}
	all, first := uses(text), -1
	for _, place := range identifiers.FindAllStringIndex(text, -1) {
		if text[place[0]:place[1]] != name {
			continue
		}
		if first < 0 {
			first = place[0]
		}
		if uses(text[:place[0]]+"quern_other"+text[place[1]:]) == all-1 {
			return place[0]
		}
	}
	return first
}

// missingExports finds imports of names that @quern/sdk does not have. code is the text without types.
func missingExports(text, code string) (found []finding) {
	known := strings.Fields(sdkNames)
	for _, statement := range sdkImport.FindAllStringSubmatch(code, -1) {
		for _, name := range strings.Split(statement[1], ",") {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " as ")
			if name == "" || name == "default" || fields(sdkNames)[name] {
				continue
			}
			message := fmt.Sprintf("@quern/sdk has no %s: %s", name, spelling.DidYouMean(name, known))
			at := 0
			named := regexp.MustCompile(`import\s[^;"']*?\b(` + regexp.QuoteMeta(name) + `)\b`)
			if place := named.FindStringSubmatchIndex(text); place != nil {
				at = place[2]
			}
			found = append(found, finding{at, message})
		}
	}
	return found
}
