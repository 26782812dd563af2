// A shared library that brings a Go runtime, and nothing else.
package main

import "C"

//export hello
func hello() C.int { return 7 }

func main() {}
