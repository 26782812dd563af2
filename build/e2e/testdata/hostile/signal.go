package main

import (
	"os/signal"
	"syscall"
	"unsafe"
)

func signalIgnore(s syscall.Signal) { signal.Ignore(s) }

func pointer(name string) uintptr {
	b := append([]byte(name), 0)
	return uintptr(unsafe.Pointer(&b[0]))
}
