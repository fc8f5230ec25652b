// Package examples has one lesson in each folder, from the smallest plugin to one that does real work. Its tests build
// each example by the command in the example's README, and run it.
package examples
