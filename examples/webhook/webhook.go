// Handler webhook is a Quern plugin that sends an event to a receiver: it posts the task's payload to the receiver's
// URL, with a signature. The receiver's answer decides whether the task completes, fails or is retried.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/quern-project/quern/examples/webhook/signature"
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
	"github.com/quern-project/quern/sdk/typed"
)

const (
	keyName  = "signing_key"    // name of the secret
	patience = 20 * time.Second // timeout of a request; the plugin's own limit is a little longer
	// longestWait is the longest pause that a receiver may ask for.
	longestWait = 24 * time.Hour
)

// delivery is the task's input.
type delivery struct {
	URL     string          `json:"url"`
	Event   string          `json:"event"`
	Payload json.RawMessage `json:"payload"`
}

// message is the body of the request to the receiver.
type message struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// receipt is the task's result.
type receipt struct {
	Status int `json:"status"` // the status of the receiver's answer
}

// Handle is the function that Quern calls for each task, by the name quern_handle.
//
//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(typed.JSON(send)) }

func main() { sdk.Handle(typed.JSON(send)) }

func send(ctx context.Context, task *sdk.Task, d delivery) (receipt, error) {
	if d.URL == "" || d.Event == "" || d.Payload == nil {
		return receipt{}, sdk.Fatal(errors.New(`a webhook is {"url": "https://...", "event": "name", "payload": any JSON}`))
	}
	key, err := signingKey()
	if err != nil {
		return receipt{}, err // not fatal: the task is good, and will succeed once there is a key
	}
	body, err := json.Marshal(message{d.Event, d.Payload})
	if err != nil {
		return receipt{}, sdk.Fatal(err)
	}
	now := time.Now()
	answer, err := fetch.Do(ctx, fetch.Request{
		Method: "POST", URL: d.URL, Body: body, Timeout: patience,
		Header: map[string][]string{
			"Content-Type": {"application/json"},
			// The task's ID is the same in every attempt: it shows the receiver which webhooks it has had already.
			"Idempotency-Key":         {task.ID},
			signature.HeaderID:        {task.ID},
			signature.HeaderTimestamp: {strconv.FormatInt(now.Unix(), 10)},
			signature.HeaderSignature: {key.Sign(task.ID, now, body)},
		},
	})
	switch {
	case errors.Is(err, sdk.ErrInvalid): // the URL is invalid
		return receipt{}, sdk.Fatal(fmt.Errorf("send the webhook: %w", err))
	case err != nil: // no answer, or the manifest does not grant the host: both may change, so the task is retried
		return receipt{}, fmt.Errorf("send the webhook: %w", err)
	}
	return receipt{answer.Status}, judge(answer)
}

func signingKey() (signature.Key, error) {
	text, err := sdk.Secret(keyName)
	if err != nil {
		return nil, err
	}
	key, err := signature.ParseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", keyName, err)
	}
	return key, nil
}

// judge returns the error with which the task ends, according to the receiver's answer; nil if the task completes.
func judge(answer *fetch.Response) error {
	status := answer.Status
	err := fmt.Errorf("the receiver answered %d", status)
	wait, _ := answer.RetryAfter()
	switch {
	case status >= 200 && status < 300:
		return nil
	case wait > 0 && (status == 429 || status == 503):
		return sdk.RetryAfter(err, min(wait, longestWait))
	case status == 408 || status == 429 || status >= 500:
		return err // retried as the manifest says, with a delay that doubles each time
	case status >= 300 && status < 400:
		// A redirect is not followed: nobody has granted its target, which would get the signed body.
		return sdk.Fatal(fmt.Errorf("%w, a redirect: send webhooks to its new URL", err))
	}
	return sdk.Fatal(err)
}
