package slots

import "github.com/assay-hpc/assay/coll/transport"

// An Rx is the receiving end of a connection.
type Rx struct {
	*Conn
	r      Receiver
	looked bool // header and length belong to message Count
	header transport.Header
	length int // without the header
}

var _ transport.Rx = (*Rx)(nil)

// MaxMessage is the length of the longest message, in bytes.
func (r *Rx) MaxMessage() int {
	r.Lock()
	defer r.Unlock()
	return r.maxMessage
}

// Direct is false: messages are received into registered memory.
func (r *Rx) Direct() bool { return false }

// Post is not called, as Direct is false.
func (r *Rx) Post([]byte) { panic("slots: Post on a connection that is not direct") }

// Done is not called, as Direct is false.
func (r *Rx) Done() (transport.Header, int, bool) {
	panic("slots: Done on a connection that is not direct")
}

// Peek implements transport.Rx.
func (r *Rx) Peek() (p []byte, h transport.Header, ok bool) {
	r.Lock()
	if r.Usable() && r.poll() {
		p = r.slot(r.Count)[HeaderSize : HeaderSize+r.length]
		h, ok = r.header, true
	}
	r.Unlock()
	return p, h, ok
}

// poll reports whether message Count has arrived and is valid.
func (r *Rx) poll() bool {
	if r.looked {
		return true
	}
	if r.left() {
		r.miss()
		return false
	}
	if !r.r.Arrived() || r.Broken {
		return false
	}
	h, n, err := parseHeader(r.slot(r.Count), r.Count)
	if err != nil {
		r.Fail("it sent " + err.Error())
		return false
	}
	r.header, r.length, r.looked = h, n, true
	return true
}

// left reports whether the sender has closed and all its messages were received: its
// goodbye contains their number.
func (r *Rx) left() bool { return r.Gone && int32(r.Count-r.Told) >= 0 }

// Release implements transport.Rx.
func (r *Rx) Release() bool {
	r.Lock()
	if r.Usable() && r.looked {
		r.looked = false
		r.Count++
		r.r.Release()
	}
	r.Unlock()
	return true
}
