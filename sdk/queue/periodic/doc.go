// Package periodic repeats work: a Duty is work that recurs regularly and on request, and a Pause is the wait after
// failures.
package periodic
