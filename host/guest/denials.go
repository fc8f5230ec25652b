package guest

import (
	"fmt"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/units"
)

// What a handler is denied, with the remedy. A denial by the host's grants comes from manifest.Permissions, one of a bucket that the
// manifest lacks from host/kv, and one of a request from runtime/egress.

func deniedQueue(name string) error {
	return fmt.Errorf("%w: the queue %q: add it to capabilities.enqueue.queues", service.ErrDenied, name)
}

func deniedSecret(name string) error {
	return fmt.Errorf("%w: the manifest does not grant the secret %q: add it to capabilities.secrets", service.ErrDenied, name)
}

func tooDeep(depth int) error {
	return fmt.Errorf("%w: the task has %d parents above it: raise capabilities.enqueue.depth if that is no circle", service.ErrLimit, depth)
}

func tooManyChildren(permissions *manifest.Permissions, most int) error {
	return fmt.Errorf("%w: a task may enqueue %d tasks: %s", service.ErrLimit, most, permissions.RaiseEnqueue("tasks"))
}

func childrenTooLarge(permissions *manifest.Permissions, most, size int64) error {
	return fmt.Errorf("%w: a task may enqueue tasks of %s together, and this one of %s is more than is left: %s",
		service.ErrLimit, units.FormatSize(most), units.FormatSize(size), permissions.RaiseEnqueue("bytes"))
}

// TooManyQueues is the error of Host.AdmitQueue for a tenant that has as many queues as it may have.
func TooManyQueues(count int) error {
	return fmt.Errorf("%w: the tenant has %d queues, and the host lets handlers add no more: use one of them, or raise --max-queues",
		service.ErrLimit, count)
}

func noSecretsFolder() error {
	return fmt.Errorf("%w: there is no folder of secrets: give it by --secrets", service.ErrNotFound)
}
