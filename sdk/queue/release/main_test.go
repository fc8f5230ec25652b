package release_test

import (
	"os"
	"testing"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { os.Exit(queuetest.Main(m)) }
