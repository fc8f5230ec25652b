// Package conformance tests that Quern's SDKs behave the same. On a real host with a real Redis, guests in several
// languages must behave as behaviors.yaml says. README.md explains what a new language needs.
package conformance
