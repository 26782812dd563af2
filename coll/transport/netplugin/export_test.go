//go:build cgo

package netplugin

// HangUp ends all TCP connections, as the death of the process would.
func (e *Endpoint) HangUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tx {
		t.wire.Close()
	}
	for _, r := range e.rx {
		if r.wire != nil {
			r.wire.Close()
		}
	}
}
