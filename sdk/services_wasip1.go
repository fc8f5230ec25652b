package sdk

import (
	"errors"
	"unsafe"

	"github.com/quern-project/quern/sdk/internal/guest"
)

// The functions of quern_v1 that not every handler imports: Go imports only the functions that a module calls. A string
// is passed as two parameters, its address and its length.

//go:wasmimport quern_v1 result_size
func resultSize() int32

//go:wasmimport quern_v1 cancelled
func cancelled() int32

//go:wasmimport quern_v1 log
//go:noescape
func hostLog(level uint32, text, fields string) int32

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

//go:wasmimport quern_v1 dependency_result
//go:noescape
func dependencyResult(id string) int32

//go:wasmimport quern_v1 sql
//go:noescape
func runSQL(database, statement, parameters string) int32

//go:wasmimport quern_v1 sql_commit
//go:noescape
func commitSQL(database, step, value string) int32

//go:wasmimport quern_v1 sql_rollback
//go:noescape
func rollbackSQL(database string) int32

//go:wasmimport quern_v1 sql_step
//go:noescape
func stepSQL(database, step string) int32

//go:wasmimport quern_v1 progress
//go:noescape
func progress(fraction float64, message string) int32

// refusal returns why the host refused the previous call; "" if it gave no reason.
func refusal() string { return guest.Refusal() }

// answered returns the error for a negative answer of the host, else nil.
func answered(answer int32) error {
	if answer < 0 {
		return HostError(answer)
	}
	return nil
}

// slot returns the content of the slot after a call that returned its length.
func slot(answer int32) ([]byte, error) {
	b, errno := guest.Slot(answer)
	return b, answered(errno)
}

// guestServices has the functions of quern_v1 as methods. It is not used through an interface, because Go would then
// also import the functions that are never called.
type guestServices struct{}

func services() guestServices { return guestServices{} }

// logLine and Progress call the host by the functions own.log and own.progress, which Run sets. A command does not call
// Run. So Go does not import the host's functions into a command, which must not import them.
func logLine(level Level, text, fields string) error {
	if own.log == nil {
		return writeLine(stderr(), level, text, fields)
	}
	return own.log(level, text, fields)
}

func (guestServices) Progress(fraction float64, message string) error {
	if own.progress == nil {
		return reportProgress(stderr(), fraction, message)
	}
	own.progress(fraction, message)
	return nil
}

// sayLine and sayProgress are the functions that Run sets. In the warm call, progress is not reported: if that call
// used a function that needs a task, the host would discard its snapshot.
func sayLine(level Level, text, fields string) error {
	return answered(hostLog(uint32(level), text, fields))
}

func sayProgress(fraction float64, message string) {
	if !own.warming {
		progress(fraction, message)
	}
}

func (guestServices) SaveCheckpoint(value []byte) error {
	return answered(checkpointSave(guest.View(value)))
}

func (guestServices) Checkpoint() ([]byte, error) { return slot(checkpointLoad()) }

func (guestServices) Config(name string) (string, bool) {
	value, err := slot(configGet(name))
	return guest.View(value), err == nil
}

func (guestServices) Secret(name string) ([]byte, error) { return slot(secretGet(name)) }

func (guestServices) Get(bucket, key string) ([]byte, error) { return slot(kvGet(bucket, key)) }

func (guestServices) Set(bucket, key string, value []byte, ttl int64) error {
	return answered(kvSet(bucket, key, guest.View(value), ttl))
}

func (guestServices) Delete(bucket, key string) (bool, error) {
	answer := kvDelete(bucket, key)
	return answer == 1, answered(answer)
}

func (guestServices) Increment(bucket, key string, delta int64) (sum int64, err error) {
	err = answered(kvIncrement(bucket, key, delta, &sum))
	return sum, err
}

func (guestServices) Swap(bucket, key string, old, value []byte, ttl int64) (present []byte, err error) {
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

func (guestServices) List(bucket, prefix, after string, limit int) ([]string, error) {
	if int(int32(limit)) != limit {
		return nil, ErrInvalid
	}
	list, err := slot(kvList(bucket, prefix, after, uint32(limit)))
	var keys []string
	for len(list) >= 4 {
		// by hand, since encoding/binary would link reflect
		n := uint32(list[0]) | uint32(list[1])<<8 | uint32(list[2])<<16 | uint32(list[3])<<24
		keys = append(keys, guest.View(list[4:][:n]))
		list = list[4+n:]
	}
	return keys, err
}

func (guestServices) Enqueue(queue string, parameters []byte, options *EnqueueOptions) (string, error) {
	id, err := slot(enqueue(queue, guest.View(parameters), options.json()))
	return guest.View(id), err
}

func (guestServices) Publish(topic string, payload []byte, options *PublishOptions) (string, error) {
	id, err := slot(enqueue("", guest.View(payload), options.json(topic)))
	return guest.View(id), err
}

func (guestServices) Dependencies() (string, error) {
	list, err := slot(taskText(textDependencies))
	return guest.View(list), err
}

func (guestServices) DependencyResult(id string) ([]byte, error) { return slot(dependencyResult(id)) }

func (guestServices) SQL(database, statement string, parameters []byte) ([]byte, error) {
	return slot(runSQL(database, statement, guest.View(parameters)))
}

func (guestServices) CommitSQL(database, step string, value []byte) ([]byte, error) {
	return slot(commitSQL(database, step, guest.View(value)))
}

func (guestServices) RollbackSQL(database string) error { return answered(rollbackSQL(database)) }

func (guestServices) StepSQL(database, step string) ([]byte, error) {
	return slot(stepSQL(database, step))
}

func (guestServices) TaskText(field uint32) string {
	value, _ := text(field)
	return value
}

func (guestServices) TaskNumber(field uint32) (n int64) {
	if taskNumber(field, &n) < 0 {
		return 0
	}
	return n
}

func (guestServices) Cancelled() bool { return cancelled() == 1 }
