// Package conformance is the kit by which the SDKs of Quern prove that they mean the same: guests in several languages that
// behave as behaviors.yaml says, on a real host with a real Redis. README.md says what a further language has to bring.
//
// All of it is tests.
package conformance
