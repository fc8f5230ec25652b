// Package periodic repeats work: a Duty works regularly and when it is asked, and a Pause is the wait after failures.
package periodic
