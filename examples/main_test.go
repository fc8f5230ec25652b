package examples_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/internal/exampletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestExamples runs the examples that are not Go; those that are have their tests beside them.
func TestExamples(t *testing.T) {
	t.Parallel()
	quern := exampletest.New(t)
	for name, test := range map[string]func(*testing.T, *exampletest.Plugin){
		"shout":     testShout,
		"wordcount": testWordcount,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, quern.Build(t, name))
		})
	}
}
