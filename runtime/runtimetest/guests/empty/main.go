// Command empty is a guest that does nothing: its cost is the minimum cost of a Go guest.
package main

func main() {}
