package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

// outputFlag adds -o. What JSON holds is relied upon by scripts: snake_case, times in seconds as in
// Redis, durations in fields that end in _seconds, sizes in bytes, missing values left out.
func outputFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("output", "o", "text", "text or json")
}

// asJSON tells which output is asked for.
func asJSON(format string) (bool, error) {
	switch format {
	case "json":
		return true, nil
	case "text":
		return false, nil
	}
	return false, usagef("output %q: use text or json", format)
}

func writeJSON(w io.Writer, value any) error {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// writeTable writes rows in columns under a heading.
func writeTable(w io.Writer, heading string, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.ReplaceAll(heading, " ", "\t"))
	for _, row := range rows {
		for i, cell := range row {
			if cell == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// seconds is a time as Redis has it.
type seconds time.Time

func (s seconds) MarshalJSON() ([]byte, error) {
	micros := time.Time(s).UnixMicro()
	return fmt.Appendf(nil, "%d.%06d", micros/1e6, micros%1e6), nil
}

// moment is a time for JSON, nil if there is none.
func moment(t time.Time) *seconds {
	if t.IsZero() {
		return nil
	}
	s := seconds(t)
	return &s
}

// taskView is a task as `task show` and `task ls` print it.
type taskView struct {
	ID               string            `json:"id"`
	Tenant           string            `json:"tenant"`
	Queue            string            `json:"queue"`
	Status           queue.Status      `json:"status"`
	Reason           queue.Reason      `json:"reason,omitempty"`
	Parameters       *string           `json:"parameters,omitempty"`
	ParametersBase64 []byte            `json:"parameters_base64,omitempty"`
	Result           *string           `json:"result,omitempty"`
	ResultBase64     []byte            `json:"result_base64,omitempty"`
	Error            *queue.Failure    `json:"error,omitempty"`
	LastError        string            `json:"last_error,omitempty"`
	Attempts         int               `json:"attempts"`
	MaxAttempts      int               `json:"max_attempts,omitempty"`
	Crashes          int               `json:"crashes,omitempty"`
	Run              int64             `json:"run"`
	Node             string            `json:"node,omitempty"`
	PID              int               `json:"pid,omitempty"`
	Created          *seconds          `json:"created,omitempty"`
	Updated          *seconds          `json:"updated,omitempty"`
	ETA              *seconds          `json:"eta,omitempty"`
	ReservedAt       *seconds          `json:"reserved_at,omitempty"`
	StartedAt        *seconds          `json:"started_at,omitempty"`
	FinishedAt       *seconds          `json:"finished_at,omitempty"`
	Plugin           string            `json:"plugin,omitempty"`
	Digest           string            `json:"digest,omitempty"`
	Priority         int               `json:"priority,omitempty"`
	Progress         float64           `json:"progress,omitempty"`
	Message          string            `json:"message,omitempty"`
	Key              string            `json:"key,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	Parent           string            `json:"parent,omitempty"`
	LiveID           string            `json:"live_id,omitempty"`
}

func newTaskView(tenant string, t *queue.Task) taskView {
	v := taskView{
		ID: t.ID, Tenant: tenant, Queue: t.Queue, Status: t.Status, Reason: t.Reason, LastError: t.LastError,
		Attempts: t.Attempts, MaxAttempts: t.MaxAttempts, Crashes: t.Crashes, Run: t.Run, Node: t.Node, PID: t.PID,
		Created: moment(t.Created), Updated: moment(t.Updated), ETA: moment(t.ETA), ReservedAt: moment(t.ReservedAt),
		StartedAt: moment(t.StartedAt), FinishedAt: moment(t.FinishedAt), Plugin: t.Plugin, Digest: t.Digest,
		Priority: t.Priority, Progress: t.Progress, Message: t.Message, Key: t.Key, Labels: t.Labels,
		Parent: t.Parent, LiveID: t.LiveID,
	}
	v.Parameters, v.ParametersBase64 = textOrBytes(t.Parameters)
	v.Result, v.ResultBase64 = textOrBytes(t.Result)
	if t.Status == queue.Failed {
		failure := t.Failure()
		v.Error = &failure
	}
	return v
}

// textOrBytes gives a value as text if it is UTF-8, else as bytes, which JSON shows in base64.
func textOrBytes(value []byte) (*string, []byte) {
	if value == nil {
		return nil, nil
	}
	if utf8.Valid(value) {
		text := string(value)
		return &text, nil
	}
	return nil, value
}

// shownBytes is the most of a value that a terminal gets.
const shownBytes = 2000

// print writes the task for people: what it has, a line each.
func (v taskView) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(table, "%s\t%s\n", name, value)
		}
	}
	when := func(name string, t *seconds) {
		if t != nil {
			line(name, time.Time(*t).Format("2006-01-02 15:04:05.000 MST"))
		}
	}
	number := func(name string, n int) {
		if n != 0 {
			line(name, fmt.Sprint(n))
		}
	}
	line("id", v.ID)
	line("tenant", v.Tenant)
	line("queue", v.Queue)
	line("status", string(v.Status))
	line("parameters", printable(v.Parameters, v.ParametersBase64))
	line("result", printable(v.Result, v.ResultBase64))
	if v.Error != nil {
		line("error", fmt.Sprintf("(%s) %s", v.Error.Reason, oneLine(v.Error.Message)))
		if v.Error.Limit != "" {
			line("limit", v.Error.Limit)
		}
		line("stderr", strings.ReplaceAll(strings.TrimSpace(v.Error.Stderr), "\n", "\n\t"))
	}
	number("attempts", v.Attempts)
	number("crashes", v.Crashes)
	line("node", v.Node)
	number("pid", v.PID)
	when("created", v.Created)
	when("eta", v.ETA)
	when("started", v.StartedAt)
	when("finished", v.FinishedAt)
	when("updated", v.Updated)
	line("plugin", v.Plugin)
	line("digest", v.Digest)
	line("message", v.Message)
	line("key", v.Key)
	for name, value := range v.Labels {
		line("label "+name, value)
	}
	line("parent", v.Parent)
	return table.Flush()
}

// printable is a value for a terminal: text in full if it is short, else its beginning or its size.
// Control characters are escaped, so that no task can write to the terminal what it likes.
func printable(text *string, data []byte) string {
	switch {
	case data != nil:
		return fmt.Sprintf("(%d bytes)", len(data))
	case text == nil:
		return ""
	case len(*text) > shownBytes:
		return fmt.Sprintf("%s… (%d bytes)", escape((*text)[:shownBytes]), len(*text))
	}
	return escape(*text)
}

// escape replaces control characters and what is not UTF-8.
func escape(text string) string {
	quoted := fmt.Sprintf("%q", text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}
