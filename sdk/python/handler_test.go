package python_test

import "testing"

func TestResult(t *testing.T) {
	p := handler(t, `
def handle(task):
    return {"hello": task.text}
`)
	if got := p.result(t, "world"); got != `{"hello":"world"}` {
		t.Errorf("%q", got)
	}
}
