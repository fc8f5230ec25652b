package tenant

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(queuetest.Main(m))
}
