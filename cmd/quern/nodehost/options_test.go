package nodehost

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/sdk/queue"
)

// The settings reach the host; zero, where it means none, as what means none there.
func TestServeKeeps(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]host.Config{
		"":                         {MaxCrashes: 3, MaxQueues: 1000, Keep: 168 * time.Hour, KeepTasks: 100_000, Retry: queue.Retry{MaxAttempts: 1}},
		"--keep 0s --keep-tasks 0": {MaxCrashes: 3, MaxQueues: 1000, Keep: -1, KeepTasks: -1, Retry: queue.Retry{MaxAttempts: 1}},
		"--max-attempts unlimited": {MaxCrashes: 3, MaxQueues: 1000, Keep: 168 * time.Hour, KeepTasks: 100_000, Retry: queue.Retry{MaxAttempts: queue.Unlimited}},
		"--keep 2d --keep-tasks 5 --max-crashes 9 --purge-foreign --max-attempts 4": {
			MaxCrashes: 9, MaxQueues: 1000, Keep: 48 * time.Hour, KeepTasks: 5, PurgeForeign: true, Retry: queue.Retry{MaxAttempts: 4},
		},
	} {
		cmd := &cobra.Command{}
		o := NewOptions(cmd, "")
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		want.Poll, want.Grace = 5*time.Second, 30*time.Second
		if got := o.config(); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%q: %+v, want %+v", args, got, want)
		}
	}
}

// The folder of secrets of `quern dev` may be made while it runs, and that of a setting goes before it.
func TestSecretsOf(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	var o Options
	o.services.Flags(flags)
	if o.SecretsOf(dir) || o.services.Secrets != dir {
		t.Errorf("a folder that may be made later: %q", o.services.Secrets)
	}
	if _, err := o.services.Egress(flags); err != nil {
		t.Error(err)
	}
	o = Options{}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if !o.SecretsOf(dir) || o.services.Secrets != dir {
		t.Errorf("a folder that is there: %q", o.services.Secrets)
	}
	o = Options{}
	o.services.Secrets = "other"
	if o.SecretsOf(dir) || o.services.Secrets != "other" {
		t.Errorf("beside a setting: %q", o.services.Secrets)
	}
}
