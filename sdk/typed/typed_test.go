package typed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/typed"
)

type order struct {
	Name  string   `json:"name"`
	Count int      `json:"count"`
	Tags  []string `json:"tags,omitempty"`
}

// A handler of Go values.
func ExampleJSON() {
	type sum struct {
		Total int `json:"total"`
	}
	handler := typed.JSON(func(_ context.Context, _ *sdk.Task, numbers []int) (sum, error) {
		var s sum
		for _, n := range numbers {
			s.Total += n
		}
		return s, nil
	})
	result, err := handler(context.Background(), &sdk.Task{Input: []byte("[1, 2, 39]")})
	fmt.Printf("%s, %v\n", result, err)
	_, err = handler(context.Background(), &sdk.Task{Input: []byte("one")})
	_, fatal := errors.AsType[*sdk.FatalError](err)
	fmt.Println(fatal)
	// Output:
	// {"total":42}, <nil>
	// true
}

func TestJSON(t *testing.T) {
	t.Parallel()
	more := func(_ context.Context, task *sdk.Task, o order) (order, error) {
		o.Count++
		o.Tags = append(o.Tags, task.ID)
		return o, nil
	}
	for input, want := range map[string]string{
		`{"name": "<b>&", "count": 1}`:            `{"name":"<b>&","count":2,"tags":["7f"]}`,
		` {"other": true, "tags": ["x"]} ` + "\n": `{"name":"","count":1,"tags":["x","7f"]}`,
		`null`: `{"name":"","count":1,"tags":["7f"]}`,
		``:     `{"name":"","count":1,"tags":["7f"]}`,
	} {
		result, err := typed.JSON(more)(t.Context(), &sdk.Task{ID: "7f", Input: []byte(input)})
		if err != nil || string(result) != want {
			t.Errorf("%s: %s, %v, want %s", input, result, err, want)
		}
	}
	raw := typed.JSON(func(_ context.Context, _ *sdk.Task, in json.RawMessage) (json.RawMessage, error) { return in, nil })
	if result, err := raw(t.Context(), &sdk.Task{Input: []byte(`{"a": 1.0}`)}); err != nil || string(result) != `{"a":1.0}` {
		t.Errorf("%s, %v", result, err)
	}
}

func TestJSONErrInput(t *testing.T) {
	t.Parallel()
	handler := typed.JSON(func(context.Context, *sdk.Task, order) (order, error) {
		t.Error("it was called")
		return order{}, nil
	})
	for _, input := range []string{" ", "{", "x", `{"count": "1"}`, `{} {}`, "[]", "\xff"} {
		result, err := handler(t.Context(), &sdk.Task{Input: []byte(input)})
		if _, fatal := errors.AsType[*sdk.FatalError](err); !fatal || result != nil || !strings.HasPrefix(err.Error(), "read the task's input as JSON: ") {
			t.Errorf("%q: %q, %v", input, result, err)
		}
	}
}

// A task without parameters, such as a join, has the zero value.
func TestJSONNoInput(t *testing.T) {
	t.Parallel()
	handler := typed.JSON(func(_ context.Context, _ *sdk.Task, in *order) (bool, error) { return in == nil, nil })
	for _, input := range [][]byte{nil, {}, []byte("null")} {
		if result, err := handler(t.Context(), &sdk.Task{Input: input}); err != nil || string(result) != "true" {
			t.Errorf("%q: %s, %v", input, result, err)
		}
	}
	join := typed.JSON(func(context.Context, *sdk.Task, struct{}) (int, error) { return 1, nil })
	if result, err := join(t.Context(), &sdk.Task{}); err != nil || string(result) != "1" {
		t.Errorf("%s, %v", result, err)
	}
}

func TestJSONErrOutput(t *testing.T) {
	t.Parallel()
	errOwn := sdk.Retry(errors.New("no paper"))
	for _, tt := range []struct {
		out  float64
		err  error
		want string
	}{
		{math.NaN(), nil, "write the task's result as JSON: "},
		{1, errOwn, "no paper"},
	} {
		handler := typed.JSON(func(context.Context, *sdk.Task, int) (float64, error) { return tt.out, tt.err })
		result, err := handler(t.Context(), &sdk.Task{Input: []byte("1")})
		_, fatal := errors.AsType[*sdk.FatalError](err)
		if result != nil || err == nil || !strings.HasPrefix(err.Error(), tt.want) || fatal != (tt.err == nil) || tt.err != nil && !errors.Is(err, errOwn) {
			t.Errorf("%q, %v, want %s", result, err, tt.want)
		}
	}
}
