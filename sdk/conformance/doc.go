// Package conformance tests that Quern's SDKs behave the same. Guests in several languages must behave as
// behaviors.yaml says, on a real host with a real Redis. README.md explains what a new language needs.
package conformance
