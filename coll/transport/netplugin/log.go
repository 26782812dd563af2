//go:build cgo

package netplugin

/*
#include "plugin.h"
*/
import "C"

import "sync/atomic"

// sink receives the plugins' lines. Plugins have one logger per process.
var sink atomic.Pointer[func(Line)]

// Log sends the plugins' lines up to a level to f from now on, instead of to the previous
// f; nil drops them. Any thread may call f, also within calls of this package.
func Log(level Level, f func(Line)) {
	if f == nil {
		sink.Store(nil)
		C.np_log_wanted(0)
		return
	}
	sink.Store(&f)
	C.np_log_wanted(C.int(level))
}

//export assayNetPluginLog
func assayNetPluginLog(level C.int, subsystems C.ulong, text *C.char) {
	if f := sink.Load(); f != nil {
		(*f)(Line{Level: Level(level), Subsystems: uint64(subsystems), Text: C.GoString(text)})
	}
}
