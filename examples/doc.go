// Package examples has one lesson a folder, from the smallest plugin to one that does real work.
// Its tests build each by the command in its README and run it.
package examples
