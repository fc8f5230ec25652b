package manage

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Attempt is one run of a task.
type Attempt struct {
	Run            int64
	Started, Ended time.Time
	Node           string // the listener that ran it
	Plugin, Digest string
	Version        string         // the name of the plugin version, if its manifest gives one
	Release        int            // the number of the release that the version was; 0 for none
	Outcome        string         // complete, failed, crashed (the host died), or one of listen.Requeue
	Failure        *queue.Failure // nil if the run did not fail, or its host died
}

// keptAttempts is the number of runs that Redis keeps in addition to the last one. Function record in prelude.lua drops
// older runs.
const keptAttempts = 20

// History reads the last runs of a task that have ended, at most 21, oldest first.
func (m *Manager) History(ctx context.Context, task *queue.Task) ([]Attempt, error) {
	entries, err := m.store.RDB.LRange(ctx, m.store.Keys.Attempts(task.ID), -2*keptAttempts, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read attempts of task %s: %w", task.ID, err)
	}
	var attempts []Attempt
	for _, entry := range entries {
		if attempt, ok := parseAttempt(entry); ok {
			attempts = append(attempts, attempt)
		}
	}
	if task.Status.Finished() && !task.StartedAt.IsZero() {
		last := Attempt{
			Run: task.Run, Started: task.StartedAt, Ended: task.FinishedAt, Node: task.Node, Plugin: task.Plugin,
			Digest: task.Digest, Version: task.Version, Release: task.Release, Outcome: string(task.Status),
		}
		if task.Status == queue.Failed {
			failure := task.Failure()
			last.Failure = &failure
		}
		attempts = append(attempts, last)
	}
	return attempts, nil
}

// parseAttempt parses "RUN STARTED ENDED LISTENER PLUGIN DIGEST OUTCOME TEXT", where DIGEST has the form that
// store.ParseVersion reads.
func parseAttempt(entry string) (Attempt, bool) {
	words := strings.SplitN(entry, " ", 8)
	if len(words) < 8 {
		return Attempt{}, false
	}
	for i, word := range words[:7] {
		if word == "-" {
			words[i] = ""
		}
	}
	attempt := Attempt{
		Run: store.AsInt(words[0]), Started: store.ParseSeconds(words[1]), Ended: store.ParseSeconds(words[2]),
		Node: words[3], Plugin: words[4],
		Outcome: words[6],
	}
	attempt.Digest, attempt.Release, attempt.Version = store.ParseVersion(words[5])
	if words[7] != "" {
		failure := queue.ParseFailure(words[7])
		attempt.Failure = &failure
	}
	return attempt, true
}

// LogLine is one line that a task's plugin wrote.
type LogLine struct {
	Number int64     // from 1, counted over all runs of the task
	Time   time.Time // when Redis got the line, which is up to about a second after the plugin wrote it
	Text   string
}

// Log reads the stored lines of a task's log whose numbers are greater than `after`.
func (m *Manager) Log(ctx context.Context, id string, after int64) ([]LogLine, error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	entries, err := m.store.RDB.LRange(ctx, m.store.Keys.Log(id), -store.LogLines, -1).Result()
	var lines []LogLine
	for _, entry := range entries {
		number, rest, _ := strings.Cut(entry, " ")
		moment, text, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= after {
			continue
		}
		lines = append(lines, LogLine{Number: n, Time: store.ParseSeconds(moment), Text: text})
	}
	return lines, store.Wrap("read log of task "+id, err)
}
