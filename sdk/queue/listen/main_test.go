package listen

import (
	"testing"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { queuetest.Exit(m) }
