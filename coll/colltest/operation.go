package colltest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// String describes the operation, for the text of a failure.
func (o operation) String() string {
	s := fmt.Sprintf("%v of %d %v", o.coll, o.count, o.t)
	if o.coll.Reduces() {
		s += fmt.Sprintf(", %v", o.op)
	}
	if o.coll.Rooted() {
		s += fmt.Sprintf(", root %d", o.root)
	}
	if o.inPlace {
		s += ", in place"
	}
	return s
}

func (o operation) data(n int) data {
	return data{seed: o.seed, t: o.t, op: o.op, n: n, move: !o.coll.Reduces()}
}

// guard is the size of the memory on either side of a buffer that must not change, in bytes. The
// seed shifts buffers by up to three elements, because not all are aligned.
const guard = 64

// A region is a buffer between guards.
type region struct{ all, buf []byte }

func newRegion(size int, o operation, salt uint64) region {
	shift := int(o.seed%4) * o.t.Size()
	all := make([]byte, guard+shift+size+guard)
	for i := 0; i < len(all); i += 8 {
		var pattern [8]byte
		binary.LittleEndian.PutUint64(pattern[:], mix(o.seed+salt+uint64(i)))
		copy(all[i:], pattern[:])
	}
	return region{all, all[guard+shift : guard+shift+size : guard+shift+size]}
}

// parallel distributes a long loop over all processors.
func parallel(n int, do func(from, to int)) {
	const least = 64 << 10 // iterations per part
	parts := min(runtime.GOMAXPROCS(0), n/least)
	if parts < 2 {
		do(0, n)
		return
	}
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() { do(i*n/parts, (i+1)*n/parts) })
	}
	wg.Wait()
}

// A wrongResult is a difference between the content of memory and what it must be.
type wrongResult struct{ text string }

func (w *wrongResult) Error() string { return w.text }

func wrong(format string, a ...any) error { return &wrongResult{fmt.Sprintf(format, a...)} }

// run makes the call on one rank and compares all of its memory with the expected content. The
// error gives the first difference.
func (o operation) run(c Comm) error {
	n, rank, size := c.Size(), c.Rank(), o.t.Size()
	part := o.count * size
	d := o.data(n)
	input := func(p []byte) {
		parallel(len(p)/size, func(from, to int) {
			for i := from; i < to; i++ {
				store(o.t, p, i, d.at(rank, i))
			}
		})
	}

	sends, recvs := o.coll.Parts(0, 0, n) // at the rank with the most parts; ranks that do not use a buffer have it, too
	send, recv := newRegion(sends*part, o, 1), newRegion(recvs*part, o, 2)
	sendBuf, recvBuf := send.buf, recv.buf
	if o.inPlace {
		switch inSend, inRecv := o.coll.Parts(rank, o.root, n); {
		case o.coll.Vector():
			sendBuf = recvBuf
		case inRecv == n:
			sendBuf = recvBuf[rank*part:][:part:part]
		case inSend == n:
			recvBuf = sendBuf[rank*part:][:part:part]
		}
	}
	input(sendBuf)

	sendWant, recvWant := bytes.Clone(send.all), bytes.Clone(recv.all)
	if o.receives(rank, n) {
		if o.coll.Reduces() {
			d.bits = o.answer.get(d, sends*o.count)
		}
		want := within(recvWant, recv.all, recvBuf)
		if want == nil {
			want = within(sendWant, send.all, recvBuf)
		}
		parallel(len(want)/size, func(from, to int) {
			for i := from; i < to; i++ {
				store(o.t, want, i, wants[o.coll](d, rank, o.root, o.count, i))
			}
		})
	}
	if o.coll.Reduces() {
		o.answer.put(d)
	}
	if err := c.Do(&op.Op{Coll: o.coll, Send: sendBuf, Recv: recvBuf, Count: o.count, Type: o.t, Red: o.op, Root: o.root}); err != nil {
		return err
	}
	if err := o.compare("receive", recv, recvWant, d.ulps()); err != nil {
		return err
	}
	return o.compare("send", send, sendWant, d.ulps())
}

// within returns the part of a copy of all that corresponds to buf, nil if buf is not part of
// all.
func within(clone, all, buf []byte) []byte {
	if len(buf) == 0 {
		return clone[:0]
	}
	for off := range len(all) - len(buf) + 1 {
		if &all[off] == &buf[0] {
			return clone[off:][:len(buf)]
		}
	}
	return nil
}

// compare returns an error for the first byte outside, or else the first element inside a region
// that is not as wanted.
func (o operation) compare(what string, r region, want []byte, ulps uint64) error {
	if bytes.Equal(r.all, want) {
		return nil
	}
	start := len(r.all) - guard - len(r.buf)
	end := start + len(r.buf)
	for i := range r.all {
		if (i < start || i >= end) && r.all[i] != want[i] {
			return wrong("memory %d bytes from the start of the %s buffer, which has %d, was overwritten", i-start, what, len(r.buf))
		}
	}
	for i := range len(r.buf) / o.t.Size() {
		got, want := elem.Bits(r.buf, o.t, i), elem.Bits(want[start:end], o.t, i)
		if apart(got, want) > ulps {
			return wrong("element %d of the %s buffer is %s; want %s", i, what, show(o.t, got), show(o.t, want))
		}
	}
	return nil
}

func apart(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// show prints an element as bits, with its value if that is easy.
func show(t elem.Type, bits uint64) string {
	s := fmt.Sprintf("%#0*x", 2*t.Size()+2, bits)
	if t == elem.Float32 || t == elem.Float64 {
		s += fmt.Sprintf(" (%v)", toFloat(t, bits))
	}
	return s
}
