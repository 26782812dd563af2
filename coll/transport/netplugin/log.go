//go:build cgo

package netplugin

/*
#include "plugin.h"
*/
import "C"

import "sync/atomic"

// sink is where lines go. Plugins know one logger for the process.
var sink atomic.Pointer[func(Line)]

// Log sends the plugins' lines up to a level to f from now on, instead of
// where they went before; nil drops them. f may be called by any thread, also
// within calls of this package.
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
