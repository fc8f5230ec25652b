// Package conformance tests that Quern's SDKs mean the same: guests in several languages behave as behaviors.yaml says,
// on a real host with a real Redis. README.md says what a new language needs.
package conformance
