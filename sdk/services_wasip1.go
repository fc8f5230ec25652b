package sdk

import (
	"errors"
	"unsafe"

	"github.com/quern-project/quern/sdk/internal/guest"
)

// Further imports of quern_v1. A string is two parameters, address and length. Go imports only the functions that a
// module calls.

//go:wasmimport quern_v1 result_size
func resultSize() int32

//go:wasmimport quern_v1 cancelled
func cancelled() int32

//go:wasmimport quern_v1 log
//go:noescape
func logLine(level uint32, text, fields string) int32

//go:wasmimport quern_v1 checkpoint_save
//go:noescape
func checkpointSave(value string) int32

//go:wasmimport quern_v1 checkpoint_load
func checkpointLoad() int32

//go:wasmimport quern_v1 config_get
//go:noescape
func configGet(name string) int32

//go:wasmimport quern_v1 secret_get
//go:noescape
func secretGet(name string) int32

//go:wasmimport quern_v1 kv_get
//go:noescape
func kvGet(bucket, key string) int32

//go:wasmimport quern_v1 kv_set
//go:noescape
func kvSet(bucket, key, value string, ttl int64) int32

//go:wasmimport quern_v1 kv_delete
//go:noescape
func kvDelete(bucket, key string) int32

//go:wasmimport quern_v1 kv_increment
//go:noescape
func kvIncrement(bucket, key string, delta int64, sum *int64) int32

//go:wasmimport quern_v1 kv_swap
//go:noescape
func kvSwap(bucket, key string, old *byte, oldN uint32, value string, ttl int64) int32

//go:wasmimport quern_v1 kv_list
//go:noescape
func kvList(bucket, prefix, after string, limit uint32) int32

//go:wasmimport quern_v1 enqueue
//go:noescape
func enqueue(queue, parameters, options string) int32

//go:wasmimport quern_v1 progress
//go:noescape
func progress(fraction float64, message string) int32

// answered returns the error of an answer.
func answered(answer int32) error {
	if answer < 0 {
		return HostError(answer)
	}
	return nil
}

// slot returns the slot's contents after a call that answered their length.
func slot(answer int32) ([]byte, error) {
	b, errno := guest.Slot(answer)
	return b, answered(errno)
}

// hostLog and hostProgress call functions that Run sets: a command must not import these, and Go does not import what
// nobody calls.
func hostLog(level Level, text, fields string) (said bool, err error) {
	if own.log == nil {
		return false, nil
	}
	return true, own.log(level, text, fields)
}

func hostProgress(fraction float64, message string) (said bool) {
	if own.progress == nil {
		return false
	}
	own.progress(fraction, message)
	return true
}

// sayLine and sayProgress are set by Run. The warm call reports no progress: a call of a function that needs a task
// would discard its snapshot.
func sayLine(level Level, text, fields string) error {
	return answered(logLine(uint32(level), text, fields))
}

func sayProgress(fraction float64, message string) {
	if !own.warming {
		progress(fraction, message)
	}
}

func hostSave(value []byte) error { return answered(checkpointSave(guest.View(value))) }

func hostLoad() ([]byte, error) { return slot(checkpointLoad()) }

func hostConfig(name string) (string, bool) {
	value, err := slot(configGet(name))
	return guest.View(value), err == nil
}

func hostSecret(name string) ([]byte, error) { return slot(secretGet(name)) }

func hostGet(bucket, key string) ([]byte, error) { return slot(kvGet(bucket, key)) }

func hostSet(bucket, key string, value []byte, ttl int64) error {
	return answered(kvSet(bucket, key, guest.View(value), ttl))
}

func hostDelete(bucket, key string) (bool, error) {
	answer := kvDelete(bucket, key)
	return answer == 1, answered(answer)
}

func hostIncrement(bucket, key string, delta int64) (sum int64, err error) {
	err = answered(kvIncrement(bucket, key, delta, &sum))
	return sum, err
}

func hostSwap(bucket, key string, old, value []byte, ttl int64) (present []byte, err error) {
	length := uint32(len(old))
	if old == nil {
		length = 1<<32 - 1
	}
	switch err = answered(kvSwap(bucket, key, unsafe.SliceData(old), length, guest.View(value), ttl)); {
	case errors.Is(err, ErrNotFound):
		return nil, ErrConflict
	case errors.Is(err, ErrConflict):
		if present, err = slot(resultSize()); err == nil {
			err = ErrConflict
		}
	}
	return present, err
}

func hostList(bucket, prefix, after string, limit int) ([]string, error) {
	if int(int32(limit)) != limit {
		return nil, ErrInvalid
	}
	list, err := slot(kvList(bucket, prefix, after, uint32(limit)))
	var keys []string
	for len(list) >= 4 {
		n := uint32(list[0]) | uint32(list[1])<<8 | uint32(list[2])<<16 | uint32(list[3])<<24 // encoding/binary would link reflect
		keys = append(keys, guest.View(list[4:][:n]))
		list = list[4+n:]
	}
	return keys, err
}

func hostEnqueue(queue string, parameters []byte, options *EnqueueOptions) (string, error) {
	id, err := slot(enqueue(queue, guest.View(parameters), options.json()))
	return guest.View(id), err
}

func hostText(field uint32) string {
	value, _ := text(field)
	return value
}

func hostNumber(field uint32) (n int64) {
	if taskNumber(field, &n) < 0 {
		return 0
	}
	return n
}

func hostCancelled() bool { return cancelled() == 1 }
