//go:build !wasip1

package sdk

import "github.com/quern-project/quern/sdk/internal/native"

// Without a host there is none of its services; sdktest lends one.

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
	if h := native.Current(); h != nil {
		return h.Checkpoint()
	}
	return nil, ErrNoHost
}

func hostConfig(name string) (string, bool) {
	if h := native.Current(); h != nil {
		return h.Config(name)
	}
	return "", false
}

func hostSecret(name string) ([]byte, error) {
	if h := native.Current(); h != nil {
		return h.Secret(name)
	}
	return nil, ErrNoHost
}

func hostGet(bucket, key string) ([]byte, error) {
	if h := native.Current(); h != nil {
		return h.Get(bucket, key)
	}
	return nil, ErrNoHost
}

func hostSet(bucket, key string, value []byte, ttl int64) error {
	if h := native.Current(); h != nil {
		return h.Set(bucket, key, value, ttl)
	}
	return ErrNoHost
}

func hostDelete(bucket, key string) (bool, error) {
	if h := native.Current(); h != nil {
		return h.Delete(bucket, key)
	}
	return false, ErrNoHost
}

func hostIncrement(bucket, key string, delta int64) (int64, error) {
	if h := native.Current(); h != nil {
		return h.Increment(bucket, key, delta)
	}
	return 0, ErrNoHost
}

func hostSwap(bucket, key string, old, value []byte, ttl int64) ([]byte, error) {
	if h := native.Current(); h != nil {
		return h.Swap(bucket, key, old, value, ttl)
	}
	return nil, ErrNoHost
}

func hostList(bucket, prefix, after string, limit int) ([]string, error) {
	if h := native.Current(); h != nil {
		return h.List(bucket, prefix, after, limit)
	}
	return nil, ErrNoHost
}

func hostEnqueue(queue string, parameters []byte, options *EnqueueOptions) (string, error) {
	if h := native.Current(); h != nil {
		return h.Enqueue(queue, parameters, options)
	}
	return "", ErrNoHost
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
