package perf

import (
	"slices"
	"sync"

	"github.com/assay-hpc/assay/coll/op"
)

// guard is the size of the watched memory on either side of a buffer, in bytes: a page, so that
// buffers stay aligned.
const guard = 4096

// A truth knows, for one rank, the content of every buffer of an operation before and after it.
type truth struct {
	c       collective
	rank, n int
	root    int
	moved   *pattern // data that is only moved, see stride
	mine    *pattern // this rank's input to a reduction
	want    *pattern // the reduction's result
	poison  *pattern // content of memory that was not written
}

// A sketch is the content of a rank's two buffers, before or after an operation.
type sketch struct{ send, recv layout }

// before returns the content of the buffers when the operation begins; after returns what they
// must contain when it has ended. In place only recv counts.
func (t *truth) before(v volume, inPlace bool) sketch {
	if !inPlace {
		return sketch{t.given(t.rank, 0, v.send), layout{{t.poison, 0, v.recv}}}
	}
	if t.c.blocks() && !t.c.inSend() && !t.c.aliased() { // the rank's block of recv, surrounded by poison
		return sketch{recv: t.amid(layout{{t.poison, 0, v.recv}}, t.given(t.rank, 0, v.send))}
	}
	return sketch{recv: t.given(t.rank, 0, v.send)}
}

func (t *truth) after(v volume, inPlace bool) sketch {
	s := t.before(v, inPlace)
	switch {
	case !t.receives():
	case inPlace && t.c.inSend():
		s.recv = t.amid(s.recv, t.result(v))
	default:
		s.recv = t.result(v)
	}
	return s
}

// receives reports whether the operation writes anything on this rank.
func (t *truth) receives() bool {
	_, recv := t.c.Parts(t.rank, t.root, t.n)
	return recv > 0
}

// given returns a range of a rank's input to the operation.
func (t *truth) given(rank int, first, n int64) layout {
	if t.c.Reduces() && t.mine != nil {
		return layout{{t.mine, first, n}}
	}
	return t.of(rank, first, n)
}

// of returns a range of a rank's data, where data is only moved.
func (t *truth) of(rank int, first, n int64) layout {
	return layout{{t.moved, first + int64(stride(rank, t.moved.elements())), n}}
}

// result returns what the operation writes on this rank.
func (t *truth) result(v volume) layout {
	block := int64(t.rank) * v.count
	switch t.c.Collective {
	case op.AllReduce, op.Reduce:
		return t.reduced(0, v.recv)
	case op.ReduceScatter:
		return t.reduced(block, v.recv)
	case op.Broadcast:
		return t.of(t.root, 0, v.recv)
	case op.Scatter:
		return t.of(t.root, block, v.recv)
	case op.SendRecv:
		return t.of((t.rank+t.n-1)%t.n, 0, v.recv)
	case op.AllToAll:
		return t.fromAll(block, v.count)
	}
	return t.fromAll(0, v.count) // all_gather, gather
}

func (t *truth) reduced(first, n int64) layout {
	if t.want == nil {
		return t.of(t.rank, first, n)
	}
	return layout{{t.want, first, n}}
}

// fromAll returns one block of every rank, in the order of the ranks.
func (t *truth) fromAll(first, n int64) layout {
	var im layout
	for r := range t.n {
		im = append(im, t.of(r, first, n)...)
	}
	return im
}

// amid replaces this rank's block of whole, which is one segment.
func (t *truth) amid(whole, block layout) layout {
	s, n := whole[0], block[0].n
	at := int64(t.rank) * n
	return slices.Concat(layout{{s.p, s.first, at}}, block, layout{{s.p, s.first + at + n, s.n - at - n}})
}

// A source generates the patterns of a run's type, reduction, seed and size. Ranks of one process
// share those that do not depend on the rank.
type source struct {
	mu     sync.Mutex
	shared map[sharedKey]func() []byte
	order  []sharedKey // oldest first
}

type sharedKey struct {
	g      generator
	period int
}

// keep bounds how many shared patterns stay cached; their users keep references of their own.
const keep = 16

// pattern returns the result of a generator's reduction; for a generator without ranks, data that
// is only moved.
func (s *source) pattern(g generator, period int) *pattern {
	s.mu.Lock()
	key := sharedKey{g, period}
	gen, ok := s.shared[key]
	if !ok {
		gen = sync.OnceValue(func() []byte {
			if g.n == 0 {
				return moves(g.t, g.seed, period)
			}
			return g.want(period)
		})
		if s.shared == nil {
			s.shared = map[sharedKey]func() []byte{}
		}
		s.shared[key] = gen
		s.order = append(s.order, key)
		if len(s.order) > keep {
			delete(s.shared, s.order[0])
			s.order = s.order[1:]
		}
	}
	s.mu.Unlock()
	p := &pattern{t: g.t, data: gen()}
	if !g.exact() {
		p.slack = 2
	}
	return p
}

// truth returns the truth of an operation with this seed.
func (s *source) truth(c collective, g generator, rank, root, period int) *truth {
	t := &truth{
		c: c, rank: rank, n: g.n, root: root,
		moved:  s.pattern(generator{t: g.t, seed: g.seed}, period),
		poison: s.pattern(generator{t: g.t, seed: ^g.seed}, period),
	}
	if c.Reduces() && g.n > 1 {
		t.mine = &pattern{t: g.t, data: g.input(rank, period)}
		t.want = s.pattern(g, period)
	}
	return t
}

// A buffer is memory with guards around what an operation may touch.
type buffer struct {
	mem  []byte // as it came from Alloc
	base int    // where data begins in it
}

// data is the part that operations use.
func (b *buffer) data() []byte { return b.mem[b.base : len(b.mem)-guard] }

// guarded returns the layout im of the buffer's first bytes with poison before and after it, and
// the memory that it describes.
func (b *buffer) guarded(im layout, poison *pattern) (layout, []byte) {
	n := int(im.bytes())
	edge := int64(guard / poison.t.Size())
	mem := b.mem[b.base-guard : b.base+n+guard]
	return slices.Concat(layout{{poison, 1, edge}}, im, layout{{poison, 2, edge}}), mem
}

// buffers are a rank's two buffers, of one kind of memory.
type buffers struct {
	kind       string // plain, or a mode of a ModeSetter
	send, recv buffer
}

// prepare fills the buffers for one operation.
func (t *truth) prepare(v volume, inPlace bool, b *buffers, m *medium) error {
	if err := t.visit(t.before(v, inPlace), inPlace, b, m.fill); err != nil {
		return err
	}
	return m.settle()
}

// wrong counts the elements in and around both buffers that are not as they must be after the
// operation.
func (t *truth) wrong(v volume, inPlace bool, b *buffers, m *medium) (int64, error) {
	if err := t.visit(t.after(v, inPlace), inPlace, b, m.compare); err != nil {
		return 0, err
	}
	return m.wrong()
}

// visit calls f with the layout of each buffer, including the guards.
func (t *truth) visit(s sketch, inPlace bool, b *buffers, f func(layout, []byte) error) error {
	if err := f(b.recv.guarded(s.recv, t.poison)); err != nil || inPlace {
		return err
	}
	return f(b.send.guarded(s.send, t.poison))
}

// verifiable reports whether a placement has a defined result.
func (c collective) verifiable(inPlace bool) bool { return !inPlace || !c.aliased() }
