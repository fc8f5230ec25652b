// Package periodic repeats work: a Duty works regularly and when it is asked, and a Pause is the wait after failures. Jitter,
// Sleep and Notify are what such work needs.
package periodic
