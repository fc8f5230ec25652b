//go:build !wasip1

package sdk

import "github.com/quern-project/quern/sdk/internal/native"

// services returns the host that sdktest has lent for a run, else noHost.
func services() native.Host {
	if h := native.Current(); h != nil {
		return h
	}
	return noHost{}
}

// refusal returns "": the errors of a test's host contain its reasons.
func refusal() string { return "" }

func logLine(level Level, text, fields string) error {
	return writeLine(services(), level, text, fields)
}

// noHost is the host outside of a test, where a handler runs like a command.
type noHost struct {
	native.Host // nil: the other methods are called only by Run, and only on another host
}

func (noHost) TaskText(uint32) string       { return "" }
func (noHost) TaskNumber(uint32) int64      { return 0 }
func (noHost) Cancelled() bool              { return false }
func (noHost) Config(string) (string, bool) { return "", false }

func (noHost) Write(p []byte) (int, error) { return stderr().Write(p) }

func (noHost) Progress(fraction float64, message string) error {
	return reportProgress(stderr(), fraction, message)
}

func (noHost) SaveCheckpoint([]byte) error                                { return ErrNoHost }
func (noHost) Checkpoint() ([]byte, error)                                { return nil, ErrNoHost }
func (noHost) Secret(string) ([]byte, error)                              { return nil, ErrNoHost }
func (noHost) Get(string, string) ([]byte, error)                         { return nil, ErrNoHost }
func (noHost) Set(string, string, []byte, int64) error                    { return ErrNoHost }
func (noHost) Delete(string, string) (bool, error)                        { return false, ErrNoHost }
func (noHost) Increment(string, string, int64) (int64, error)             { return 0, ErrNoHost }
func (noHost) Swap(string, string, []byte, []byte, int64) ([]byte, error) { return nil, ErrNoHost }
func (noHost) List(string, string, string, int) ([]string, error)         { return nil, ErrNoHost }
func (noHost) SQL(string, string, []byte) ([]byte, error)                 { return nil, ErrNoHost }
func (noHost) CommitSQL(string, string, []byte) ([]byte, error)           { return nil, ErrNoHost }
func (noHost) RollbackSQL(string) error                                   { return ErrNoHost }
func (noHost) StepSQL(string, string) ([]byte, error)                     { return nil, ErrNoHost }
func (noHost) Enqueue(string, []byte, any) (string, error)                { return "", ErrNoHost }
func (noHost) Dependencies() (string, error)                              { return "", ErrNoHost }
func (noHost) DependencyResult(string) ([]byte, error)                    { return nil, ErrNoHost }
func (noHost) Publish(string, []byte, any) (string, error)                { return "", ErrNoHost }
