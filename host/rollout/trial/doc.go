// Package trial decides whether a new release of a plugin is worse than the one before, from tasks that both ran at the
// same time. It knows neither Redis nor hosts.
//
// # The test
//
// The side of a task follows from a hash of its ID, so it is a random choice: of the tasks of a step with a share of
// 10 %, each one goes to the new release with probability 0.1. If both releases are equal, so is a task that fails. The
// test looks only at the tasks that fail: is the new release's part of them larger than 0.1? Whatever makes tasks of
// both releases fail more often for a time, an outage or a burst of bad input, does not change that part.
//
// For a factor r, by which the new release fails more often, a failed task is of the new release with probability q =
// s·r / (s·r + 1 − s) at share s. The evidence for r is the product of q/s for each failed task of the new release and
// (1−q)/(1−s) for each of the old one. If the releases are equal, its expectation is 1 after any number of tasks, so it
// exceeds 1/a at any time with a probability of at most a (Ville's inequality). The same holds for the mean over some
// factors. Therefore the test may look after every task, and the shares may change from step to step.
//
// A slow task is tested in the same way: it fails if it takes longer than a bound. The evidence is the mean over the
// bounds of all buckets of the histogram, so no bound has to be chosen from the data. Fuel is tested likewise.
//
// # The margins
//
// Evidence alone would stop a release that is worse by a little. So the difference must also matter: see the margins.
package trial
