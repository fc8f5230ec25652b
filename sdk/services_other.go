//go:build !wasip1

package sdk

import "github.com/quern-project/quern/sdk/internal/native"

// Services of a host of sdktest, if there is one.

func ask[T any](service func(native.Host) (T, error)) (answer T, err error) {
	if h := native.Current(); h != nil {
		return service(h)
	}
	return answer, ErrNoHost
}

func hostLog(level Level, text, fields string) (said bool, err error) {
	if h := native.Current(); h != nil {
		return true, h.Log(int(level), text, fields)
	}
	return false, nil
}

func hostProgress(fraction float64, message string) (said bool) {
	h := native.Current()
	if h != nil {
		_ = h.Progress(fraction, message)
	}
	return h != nil
}

func hostSave(value []byte) error {
	if h := native.Current(); h != nil {
		return h.SaveCheckpoint(value)
	}
	return ErrNoHost
}

func hostLoad() ([]byte, error) {
	return ask(func(h native.Host) ([]byte, error) { return h.Checkpoint() })
}

func hostConfig(name string) (string, bool) {
	if h := native.Current(); h != nil {
		return h.Config(name)
	}
	return "", false
}

func hostSecret(name string) ([]byte, error) {
	return ask(func(h native.Host) ([]byte, error) { return h.Secret(name) })
}

func hostGet(bucket, key string) ([]byte, error) {
	return ask(func(h native.Host) ([]byte, error) { return h.Get(bucket, key) })
}

func hostSet(bucket, key string, value []byte, ttl int64) error {
	if h := native.Current(); h != nil {
		return h.Set(bucket, key, value, ttl)
	}
	return ErrNoHost
}

func hostDelete(bucket, key string) (bool, error) {
	return ask(func(h native.Host) (bool, error) { return h.Delete(bucket, key) })
}

func hostIncrement(bucket, key string, delta int64) (int64, error) {
	return ask(func(h native.Host) (int64, error) { return h.Increment(bucket, key, delta) })
}

func hostSwap(bucket, key string, old, value []byte, ttl int64) ([]byte, error) {
	return ask(func(h native.Host) ([]byte, error) { return h.Swap(bucket, key, old, value, ttl) })
}

func hostList(bucket, prefix, after string, limit int) ([]string, error) {
	return ask(func(h native.Host) ([]string, error) { return h.List(bucket, prefix, after, limit) })
}

func hostEnqueue(queue string, parameters []byte, options *EnqueueOptions) (string, error) {
	return ask(func(h native.Host) (string, error) { return h.Enqueue(queue, parameters, options) })
}

func hostText(field uint32) string {
	if h := native.Current(); h != nil {
		return h.TaskText(field)
	}
	return ""
}

func hostNumber(field uint32) int64 {
	if h := native.Current(); h != nil {
		return h.TaskNumber(field)
	}
	return 0
}

func hostCancelled() bool {
	h := native.Current()
	return h != nil && h.Cancelled()
}
