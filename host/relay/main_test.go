package relay

import (
	"flag"
	"testing"

	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // they wait more than they compute; -parallel still counts
	queuetest.Exit(m, postgrestest.End)
}
