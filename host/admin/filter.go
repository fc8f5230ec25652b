package admin

import (
	"fmt"
	"strings"

	"github.com/quern-project/quern/sdk/queue"
)

// maxLabelBytes is the maximum size of all labels of a task together, in bytes.
const maxLabelBytes = 16 << 10

// Filter selects tasks that match all of its fields; an empty field matches every task.
type Filter struct {
	Queue       string            `query:"queue" json:"queue,omitempty" maxLength:"128" doc:"Of this queue."`
	Status      string            `query:"status" json:"status,omitempty" enum:"scheduled,pending,reserved,started,complete,failed"`
	Reason      string            `query:"reason" json:"reason,omitempty" maxLength:"32" doc:"Failed for this reason, such as error, timeout or crashed."`
	Key         string            `query:"key" json:"key,omitempty" maxLength:"16384" doc:"With this key. It is found by an index."`
	Label       []string          `query:"label,explode" json:"label,omitempty" maxItems:"16" doc:"With all of these labels, NAME=VALUE."`
	Error       string            `query:"error" json:"error,omitempty" maxLength:"1000" doc:"With this text in the message of their error, large or small letters alike."`
	Plugin      string            `query:"plugin" json:"plugin,omitempty" maxLength:"200" doc:"That this plugin ran."`
	Node        string            `query:"node" json:"node,omitempty" maxLength:"400" doc:"That this listener holds or held, or one whose ID begins so."`
	Since       float64           `query:"since" json:"since,omitempty" minimum:"0" doc:"Created at this second or later."`
	Until       float64           `query:"until" json:"until,omitempty" minimum:"0" doc:"Created before this second."`
	EndedSince  float64           `query:"ended_since" json:"ended_since,omitempty" minimum:"0" doc:"Finished at this second or later."`
	EndedUntil  float64           `query:"ended_until" json:"ended_until,omitempty" minimum:"0" doc:"Finished before this second."`
	DeadLetters bool              `query:"dead_letters" json:"dead_letters,omitempty" doc:"Only dead letters."`
	labels      map[string]string // names and values of Label; set by Check
}

// Check returns an error if a label is not NAME=VALUE or the queue has an invalid name. Call Check before Selects and
// Passes: it reads the labels for them.
func (f *Filter) Check() (err error) {
	if size := len(strings.Join(f.Label, "")); size > maxLabelBytes {
		return fmt.Errorf("%w: labels of %d bytes: no task has more than %d", queue.ErrInvalid, size, maxLabelBytes)
	}
	if f.labels, err = Pairs("label", f.Label); err == nil && f.Queue != "" {
		err = queue.ValidQueue(f.Queue)
	}
	return err
}

// Pairs splits the values of a parameter, each NAME=VALUE, and returns them by name. Each name may occur once. The
// errors call the parameter by its name, such as label.
func Pairs(parameter string, list []string) (map[string]string, error) {
	values := make(map[string]string, len(list))
	for _, pair := range list {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%w: %s %q: use NAME=VALUE", queue.ErrInvalid, parameter, pair)
		}
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("%w: two %ss %q: give one of them", queue.ErrInvalid, parameter, name)
		}
		values[name] = value
	}
	return values, nil
}

// Empty reports whether the filter has no condition, so that every task passes.
func (f *Filter) Empty() bool {
	return f.Queue == "" && f.Status == "" && f.Key == "" && !f.Narrows()
}

// Narrows reports whether the filter has a condition that Selects checks, so that Selects can reject a task.
func (f *Filter) Narrows() bool {
	return f.Reason != "" || len(f.Label) > 0 || f.Error != "" || f.Plugin != "" || f.Node != "" ||
		f.Since > 0 || f.Until > 0 || f.EndedSince > 0 || f.EndedUntil > 0 || f.DeadLetters
}

// Passes reports whether a task passes the whole filter.
func (f *Filter) Passes(t *queue.Task) bool {
	return (f.Queue == "" || t.Queue == f.Queue) && (f.Status == "" || string(t.Status) == f.Status) &&
		(f.Key == "" || t.Key == f.Key) && f.Selects(t)
}

// Selects is like Passes, but does not check the filter's queue, status and key. It is for tasks that were listed by
// these three.
func (f *Filter) Selects(t *queue.Task) bool {
	for name, value := range f.labels {
		if is, ok := t.Labels[name]; !ok || is != value {
			return false
		}
	}
	if f.EndedSince > 0 || f.EndedUntil > 0 {
		ended := Seconds(t.FinishedAt)
		if !t.Status.Finished() || ended < f.EndedSince || f.EndedUntil > 0 && ended >= f.EndedUntil {
			return false
		}
	}
	created := Seconds(t.Created)
	return (f.Reason == "" || t.Status == queue.Failed && string(t.Failure().Reason) == f.Reason) &&
		(f.Plugin == "" || t.Plugin == f.Plugin) && strings.HasPrefix(t.Node, f.Node) &&
		created >= f.Since && (f.Until == 0 || created < f.Until) && (!f.DeadLetters || t.LiveID != "") &&
		(f.Error == "" || f.tells(t.Error) || f.tells(t.LastError))
}

// tells reports whether the message of an error contains the filter's text, ignoring case. stored is the error as a
// task's hash has it.
func (f *Filter) tells(stored string) bool {
	failure := (&queue.Task{Error: stored}).Failure()
	return strings.Contains(strings.ToLower(failure.Message), strings.ToLower(f.Error))
}
