package plugins

import (
	"fmt"
	"math"
	"strconv"
)

// Test is a task that a manifest says the outcome of. `quern plugin test` runs it; hosts do not, and a version does not
// depend on its files.
type Test struct {
	// Name is for people. Default: the path of the input, or else its number in the list.
	Name string
	// Input is the file with the parameters: a path inside the folder of the manifest, with slashes. Default "", which
	// is no parameters.
	Input string
	// Output is the file with the result, a path like Input. Default "": the result may be anything.
	Output string
	// Exit is the exit status of a command, or what a handler returns. Default 0.
	Exit int
	// Error is a text that the error holds. With the default of Exit the task may fail in any way. Default "", which
	// is no such text.
	Error string
	// Line is that of the manifest on which the test begins.
	Line int
}

// maxTests bounds the tests of a manifest.
const maxTests = 1000

// tests reads the list of that name.
func (d *decoder) tests(n node) (tests []Test) {
	d.listOf(n, maxTests, "[{input: a.jpg, output: a.out}]", "write", func(at node) {
		test := Test{Line: at.Line}
		d.entry(at, testsField, func(key string, value node) {
			switch key {
			case "name":
				test.Name, _ = d.text(value, "a few words")
			case "input":
				test.Input = d.from(value, "a.jpg or samples/a.jpg")
			case "output":
				test.Output = d.from(value, "a.out or samples/a.out")
			case "exit":
				test.Exit = d.status(value)
			case "error":
				test.Error, _ = d.text(value, "a part of the error's text")
			}
		})
		if test.Output != "" && (test.Exit != 0 || test.Error != "") {
			d.wrong(at, "has an output, and fails", "a task that fails has no result: remove output, or exit and error")
		}
		if test.Name == "" {
			test.Name = test.Input
		}
		if test.Name == "" {
			test.Name = strconv.Itoa(len(tests) + 1)
		}
		tests = append(tests, test)
	})
	return tests
}

// status reads what a guest may end with.
func (d *decoder) status(n node) int {
	const remedy = "write a whole number, such as 65"
	value, ok := d.text(n, remedy[len("write "):])
	if !ok {
		return 0
	}
	status, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		d.wrong(n, quote(value)+" is not allowed", fmt.Sprintf("%s, from %d to %d", remedy, math.MinInt32, math.MaxInt32))
	}
	return int(status)
}
