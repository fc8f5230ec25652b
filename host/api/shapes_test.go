package api_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// fill gives every exported field of a struct a value of its own that is not zero.
func fill(t *testing.T, v reflect.Value, n *int) {
	t.Helper()
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.UnixMicro(1_700_000_000_123_000 + int64(*n)*1e6)))
		return
	case time.Duration:
		v.SetInt(int64(*n)*int64(time.Second) + int64(time.Millisecond)) // of which float64 has no exact value
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i), n)
			}
		}
	case reflect.String:
		v.SetString("text" + string(rune('a'+*n%26)))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) / 8)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.SetBytes([]byte("bytes\xff"))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	default:
		t.Fatalf("a field of kind %s: teach this test about it", v.Kind())
	}
}

// What the API shows of a task is all that there is: no field of it is left out, and a client reads what was shown.
func TestShapeOfATaskIsWhole(t *testing.T) {
	t.Parallel()
	var task queue.Task
	n := 0
	fill(t, reflect.ValueOf(&task).Elem(), &n)
	task.Status, task.Priority = queue.Failed, 70
	task.Error, task.LastError = `{"reason":"trap","message":"m","backtrace":["f"]}`, `{"reason":"error","message":"l","exit_code":3}`
	task.Retry.MaxAttempts = 0 // it is the task's
	task.Born = ""             // it proves a hold, which no client of the API has
	shown := func() string {
		text, err := json.Marshal(admin.NewTask("t", &task, nil))
		must(t, err)
		return string(text)
	}
	whole := shown()
	var check func(name string, v reflect.Value)
	check = func(name string, v reflect.Value) {
		if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
			v = v.Elem()
		}
		if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
			for i := range v.NumField() {
				if field := v.Type().Field(i); field.IsExported() && !v.Field(i).IsZero() {
					check(name+"."+field.Name, v.Field(i))
				}
			}
			return
		}
		value := reflect.ValueOf(v.Interface())
		if v.SetZero(); shown() == whole {
			t.Errorf("%s is not shown", name)
		}
		v.Set(value)
	}
	check("Task", reflect.ValueOf(&task).Elem())
	var read admin.Task
	must(t, json.Unmarshal([]byte(whole), &read))
	if want := admin.NewTask("t", &task, nil); !reflect.DeepEqual(&read, want) {
		t.Errorf("read %+v, shown was %+v", read, want)
	}
}

// A program tells the kinds of refusals by the problem's type.
func TestTypesOfProblems(t *testing.T) {
	w := setup(t)
	id := w.enqueue(t, "mail", "p", queue.Options{})
	must(t, w.Queue("mail").SetLimit(w.ctx, 1))
	for _, tt := range []struct {
		method, path string
		is           error
	}{
		{http.MethodGet, "/tasks/none", queue.ErrNoTask},
		{http.MethodGet, "/queues/none", admin.ErrNoQueue},
		{http.MethodPost, "/tasks/" + id + "/retry", queue.ErrStatus},
		{http.MethodDelete, "/tasks/" + id, queue.ErrStatus},
		{http.MethodPost, "/nodes/none/drain", listen.ErrNoNode},
		{http.MethodPost, "/queues/mail/tasks", queue.ErrQueueFull},
		{http.MethodGet, "/tasks?limit=0", queue.ErrInvalid},
	} {
		a := w.do(t, request{method: tt.method, path: tt.path})
		var problem api.Problem
		if err := json.Unmarshal(a.body, &problem); err != nil || problem.Unwrap() != tt.is { //nolint:errorlint // it is that value
			t.Errorf("%s %s: %s is %v, expected %v", tt.method, tt.path, a.body, problem.Unwrap(), tt.is)
		}
	}
}

// Tasks are found by when they ended, and by the beginning of their ID.
func TestSearchByEndAndBeginning(t *testing.T) {
	w := setup(t)
	w.enqueue(t, "mail", "p", queue.Options{ID: "aaaaaaaa-one"})
	w.settle(t, "mail", listen.Settlement{})
	w.enqueue(t, "mail", "p", queue.Options{ID: "aaaaaaaa-two"})
	now := get[api.TenantNow](t, w, "").Time
	for query, want := range map[string]int{"ended_since=1": 1, "ended_since=9999999999": 0, "ended_until=9999999999": 1, "ended_until=1": 0, "since=1": 2} {
		if got := len(get[api.List[admin.Task]](t, w, "/tasks?"+query).Items); got != want {
			t.Errorf("%s: %d tasks, expected %d", query, got, want)
		}
	}
	if age := time.Since(admin.Moment(now)); age.Abs() > time.Minute {
		t.Errorf("the time there is %f", now)
	}
	if ids := get[api.List[string]](t, w, "/task-ids?prefix=aaaaaaaa").Items; len(ids) != 2 {
		t.Errorf("%q", ids)
	}
}
