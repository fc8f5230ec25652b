// Command empty is a guest that does nothing: what it costs is what a Go guest costs at least.
package main

func main() {}
