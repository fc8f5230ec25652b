package build

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evanw/esbuild/pkg/api"
)

// A test that was saved after the build changes nothing in the module; what the handler is made of does, and what it is
// granted.
func TestNewerJavaScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, want := range map[string]bool{
		"handler.test.js": false, "lib/a.spec.ts": false, "test/a.js": false, "tests/b.json": false, "lib/__tests__/c.js": false,
		"handler.js": true, "testing.js": true, "latest/a.js": true, "tests/warm.txt": true, "package.json": true,
	} {
		for file, content := range map[string]string{
			"handler.js": "", "small.yaml": "name: small\nwarm: {input: tests/warm.txt}\n", "tests/warm.txt": "", name: "",
		} {
			path := filepath.Join(dir, name+".d", filepath.FromSlash(file))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Read(filepath.Join(dir, name+".d"))
		if err != nil {
			t.Fatal(err)
		}
		built := time.Now().Add(time.Hour)
		if newer := NewerFile(t.Context(), s, built); newer != "" {
			t.Errorf("%s is newer", newer)
		}
		file := filepath.Join(s.Dir, filepath.FromSlash(name))
		if err := os.Chtimes(file, built.Add(time.Hour), built.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if newer := NewerFile(t.Context(), s, built); (newer == file) != want {
			t.Errorf("%s changed: %q is newer", name, newer)
		}
	}
}

// A call with a locale that the engine does not have is found, at the name of the method.
func TestForeignLocale(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`x.toLocaleString("de-DE")`:                    "toLocaleString de-DE",
		`x.toLocaleDateString(["fr"], { month: "2" })`: "toLocaleDateString fr",
		"a.sort((a, b) => a.localeCompare(b, 'sv'))":   "localeCompare sv",
		"a.localeCompare(b.name, `tr`)":                "localeCompare tr",
		`a.localeCompare(b, "en-US") + a.localeCompare(b, "de-AT") + x.toLocaleString("en-US") + x.toLocaleString()`: "",
		`// x.toLocaleString("de-DE")`: "",
	} {
		var got string
		if found := foreignLocale(source); len(found) == 1 {
			method, locale, _ := strings.Cut(found[0].text, ": the locale ")
			got = method + " " + strings.Split(locale, `"`)[1]
			if !strings.HasPrefix(source[found[0].at:], method+"(") {
				t.Errorf("%s: at %d", source, found[0].at)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// Names that nothing defines are found where they are used, and no others.
func TestMissingNames(t *testing.T) {
	t.Parallel()
	const defined = `
import def, { a as b, type C } from "./a";
import * as all from "./b";
declare const GIVEN: string;
declare global { var later: number }
enum Color { Red = 1, Blue = Red }
namespace Space { export const inner = 1; export const outer = () => inner }
type Name = Missing<Other>; interface Shape { side: Length }
const { x, y: [z = 1], ...rest } = def(b, all), re = /free/g;
label: for (const i of rest) { if (i) continue label }
class Box<T> extends Map<T, Color> { #own = 1; static of = this; get own() { return this.#own } }
export async function run(this: Shape, n: number, ...more: C[]) {
  try { await import("./c") } catch (error) { console.log(error, arguments.length) }
  if (typeof guarded !== "undefined") guarded();
  globalThis.set = 1; set();
  const tag = String.raw` + "`${n} outside`" + `;
  return { n, tag, x, z, Red: Color.Red, key: re.lastIndex, own: Space.outer, ...more, new: new.target, meta: import.meta.url, GIVEN, run };
}
export default Box; // later
`
	errors, warnings := missingNames(defined, api.LoaderTS)
	if len(errors)+len(warnings) > 0 {
		t.Errorf("%v %v", errors, warnings)
	}
	errors, warnings = missingNames(defined+"export const f = () => ({ label, side: lenght(`${Buffer}`) })", api.LoaderTS)
	var got []string
	for _, found := range append(errors, warnings...) {
		got = append(got, strings.SplitN(found.text, " ", 2)[0]+strconv.Itoa(found.at-len(defined)))
	}
	if want := "Buffer49 label26 lenght39"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %s", got, want)
	}
	if _, warnings = missingNames("export default () => <Missing><b>text</b></Missing>", api.LoaderJSX); len(warnings) != 1 || warnings[0].at != 22 {
		t.Errorf("%v", warnings)
	}
}

// The names that imports are compared with are those of the package.
func TestSDKNames(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../sdk/javascript/index.js")
	if want := "export const { " + strings.ReplaceAll(sdkNames, " ", ", ") + " } = "; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v: %s", err, text)
	}
}
