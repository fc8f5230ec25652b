package host

import (
	"errors"
	"fmt"
	"testing"

	"filippo.io/age"
	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// drawing is a handler that takes random bytes, as many as half a page if its input begins with "b", and fails with the
// byte after that as its status.
func drawing(t *testing.T) []byte {
	t.Helper()
	return runtimetest.BuildWAT(t, `(module
		(import "quern_v1" "random" (func $random (param i32 i32) (result i32)))
		(import "quern_v1" "input_read" (func $input (param i32 i32 i32) (result i32)))
		(memory (export "memory") 1)
		(func (export "quern_handle") (result i32)
			(drop (call $input (i32.const 0) (i32.const 0) (i32.const 2)))
			(drop (call $random (i32.const 64) (select (i32.const 32768) (i32.const 16) (i32.eq (i32.load8_u (i32.const 0)) (i32.const 98)))))
			(i32.sub (i32.load8_u (i32.const 1)) (i32.const 48))))`)
}

// A host keeps the records of those runs that the manifest asks for, and of no others, whatever their size.
func TestRecords(t *testing.T) {
	t.Parallel()
	module := drawing(t)
	const retry = "retry: {max_attempts: 2, min: 1ms, base: 1ms, max: 1ms}\n"
	n := start(t, settings{
		guests: map[string][]byte{"failed": module, "sampled": module, "none": module, "silent": module, "again": module, "small": module},
		yaml: map[string]string{
			"failed": "name: failed\nrecord: failed\n", "sampled": "name: sampled\nrecord: sampled\n", "none": "name: none\nrecord: none\n",
			"again": "name: again\nrecord: failed\n" + retry, "small": "name: small\nrecord: failed\nlimits: {record: 1KiB}\n",
		},
	})
	for _, test := range []struct {
		queue, input string
		run          int64 // whose record there is; 0 for none
		large        bool
	}{
		{"failed", "s3", 1, false},
		{"failed", "s0", 0, false},
		{"again", "s3", 2, false}, // that of the last run that failed
		{"none", "s3", 0, false},
		{"silent", "s3", 0, false},
		{"small", "b3", 1, true},
		{"small", "s3", 1, false},
	} {
		id := n.enqueue(test.queue, test.input)
		task := n.wait(id)
		if failed := test.input[1] != '0'; failed != (task.Status == queue.Failed) {
			t.Errorf("%s %s is %s", test.queue, test.input, task.Status)
		}
		if got := n.task(id); got.RecordRun != test.run || (got.RecordSize > 0) != (test.run > 0 && !test.large) {
			t.Errorf("%s %s has a record of run %d, %d bytes", test.queue, test.input, got.RecordRun, got.RecordSize)
		}
		data, err := manage.New(n.client).Record(n.ctx, id)
		if test.run == 0 || test.large {
			if !errors.Is(err, manage.ErrNoRecord) {
				t.Errorf("%s %s: %v", test.queue, test.input, err)
			}
			continue
		}
		record, err := replay.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if h := record.Header; h.Task != id || h.Run != test.run || h.Outcome.Code != 3 || h.Outcome.Fuel == 0 || h.Module == "" || h.Manifest == "" || record.Input != nil {
			t.Errorf("%+v", record)
		}
	}
}

// sampled keeps those of some completed runs, chosen by their IDs.
func TestSampledRecords(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"sampled": drawing(t)}, yaml: map[string]string{"sampled": "name: sampled\nrecord: sampled\n"}})
	kept := 0
	var ids []string
	for i := range 300 {
		ids = append(ids, n.enqueueAs("sampled", "s0", queue.Options{ID: fmt.Sprint("task-", i)}))
	}
	for _, id := range ids {
		n.wait(id)
		if n.task(id).RecordSize > 0 {
			kept++
		}
	}
	if kept == 0 || kept > 20 {
		t.Errorf("%d of 300 have a record", kept)
	}
}

// The record of a run that its host stopped says at which fuel, and a cancelled task has one.
func TestRecordOfACancelledRun(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}, yaml: map[string]string{"sleep": "name: sleep\nrecord: failed\n"},
	})
	id := n.enqueue("sleep", "60000")
	n.eventually("it runs", func() bool { return len(n.taskLog(id)) == 1 })
	if _, err := n.client.Queue("sleep").Cancel(n.ctx, id); err != nil {
		t.Fatal(err)
	}
	n.wait(id)
	data, err := manage.New(n.client).Record(n.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if record, err := replay.Decode(data); err != nil || !record.Outcome.Stopped || record.Outcome.Fuel == 0 {
		t.Errorf("%+v, %v", record, err)
	}
}

// A record that Redis cannot take comes later: with the end of its task, or after it.
func TestRecordComesLater(t *testing.T) {
	t.Parallel()
	yaml := map[string]string{"sleep": "name: sleep\nrecord: failed\nlimits: {timeout: 1s}\n"}
	has := func(n *node, id string) func() bool {
		return func() bool { return n.task(id).RecordSize > 0 }
	}
	t.Run("a full Redis", func(t *testing.T) {
		t.Parallel()
		server := queuetest.Start(t)
		n := start(t, settings{server: server, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}, yaml: yaml})
		id := n.enqueue("sleep", "60000")
		n.count("sleep", queue.Started, 1)
		n.rdb.ConfigSet(n.ctx, "maxmemory", "1") // settlements need no memory, records do
		n.count("sleep", queue.Failed, 1)
		if has(n, id)() {
			t.Error("a full Redis has taken the record")
		}
		n.rdb.ConfigSet(n.ctx, "maxmemory", "0")
		n.eventually("the record comes", has(n, id))
	})
	t.Run("a lost connection", func(t *testing.T) {
		t.Parallel()
		server := queuetest.Start(t)
		proxy := queuetest.NewProxy(t, server)
		n := start(t, settings{server: server, proxy: proxy, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}, yaml: yaml})
		id := n.enqueue("sleep", "60000")
		n.eventually("it runs", func() bool { return n.metric("quern_slots_in_use") == 1 }) // the host has the reply of its start
		proxy.Refuse()
		n.eventually("the end of the task cannot be written", func() bool { return n.metric("quern_redis_errors_total", "op", "settle") > 0 })
		proxy.Pass()
		n.wait(id)
		n.eventually("the record comes", has(n, id))
	})
}

// The records that come later have a bound: the oldest are dropped, also those that were too large to have bytes.
func TestLateRecordsAreBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ bytes, come, wait int }{
		{lateBytes / 4, 5, 3},
		{0, lateBytes/lateRecord + 10, lateBytes / lateRecord},
	} {
		s := &shipper{logger: hclog.NewNullLogger()}
		for i := range test.come {
			s.settled(&ended{record: &listen.RunRecord{Claim: listen.Claim{Run: int64(i)}, Bytes: make([]byte, test.bytes)}})
		}
		if len(s.late) != test.wait || s.late[test.wait-1].Run != int64(test.come-1) {
			t.Errorf("of %d records of %d bytes %d wait", test.come, test.bytes, len(s.late))
		}
	}
}

// Records of a tenant with recipients are encrypted, within limits.record.
func TestEncryptedRecords(t *testing.T) {
	t.Parallel()
	module := drawing(t)
	private, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	grants, err := manifest.ParseGrants("grants.yaml", []byte(`"*": {records: {recipients: [`+private.Recipient().String()+`]}}`))
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{
		grants: grants, guests: map[string][]byte{"failed": module, "small": module},
		yaml: map[string]string{"failed": "name: failed\nrecord: failed\n", "small": "name: small\nrecord: failed\nlimits: {record: 1KiB}\n"},
	})
	id := n.enqueue("failed", "b3")
	n.wait(id)
	data, err := manage.New(n.client).Record(n.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if task := n.task(id); !task.RecordEncrypted || task.RecordSize != int64(len(data)) {
		t.Errorf("the task says of %d bytes: %+v", len(data), task)
	}
	_, err = replay.Decode(data)
	if encrypted, ok := errors.AsType[*replay.EncryptedError](err); !ok || encrypted.Recipients[0] != private.Recipient().String() {
		t.Errorf("without an identity: %v", err)
	}
	if record, err := replay.Decode(data, private); err != nil || record.Task != id {
		t.Errorf("%+v, %v", record, err)
	}
	id = n.enqueue("small", "s3")
	n.wait(id)
	if task := n.task(id); task.RecordRun != 1 || task.RecordSize > 1<<10 {
		t.Errorf("under a limit of 1 KiB: %+v", task)
	}
	id = n.enqueue("small", "b3")
	n.wait(id)
	if task := n.task(id); task.RecordRun != 1 || task.RecordSize != 0 || task.RecordEncrypted {
		t.Errorf("over a limit of 1 KiB: %+v", task)
	}
}

// A record that cannot be encrypted is lost, and is not told as one that was too large.
func TestRecordThatCannotBeEncrypted(t *testing.T) {
	t.Parallel()
	classic, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	permissions := &manifest.Permissions{Limits: runtime.Limits{Record: 64 << 10}}
	for _, text := range []string{classic.Recipient().String(), hybrid.Recipient().String()} { // age does not mix them
		to, err := replay.ParseRecipient(text)
		if err != nil {
			t.Fatal(err)
		}
		permissions.Recipients = append(permissions.Recipients, to)
	}
	tape := replay.TapeOf(permissions.Limits.Record)
	tape.Started(nil, true)
	record, err := recordOf(&ended{
		task: &task{
			version:  &plugins.TenantVersion{Version: &plugins.Version{}, Permissions: permissions},
			recorder: &recorder{tape: tape},
		},
		settlement: listen.Settlement{Failure: &queue.Failure{}},
	})
	if record != nil || err == nil {
		t.Errorf("%+v, %v", record, err)
	}
}
