package perf

import (
	"fmt"
	"slices"
)

// plain is the kind of memory that Alloc returns.
const plain = "plain"

// symmetric is the mode that -R 2 asks for.
const symmetric = "symmetric"

// kindsOf names the kinds of memory that a rank measures on: one, or when
// engines are compared all that one of them knows. What several know is each one's
// own, and no memory for the others. All ranks know alike.
func (s *session) kindsOf(i int) []string {
	own := s.world.Comms[i]
	if s.cfg.Versus == "" {
		if m, ok := own.(ModeSetter); ok && s.cfg.Register == 2 && slices.Contains(m.Modes(), symmetric) {
			return []string{symmetric}
		}
		return []string{plain}
	}
	known := map[string]int{}
	kinds := []string{plain}
	for _, c := range s.contenders(i) {
		if m, ok := c.(ModeSetter); ok {
			for _, kind := range m.Modes()[1:] {
				known[kind]++
				kinds = append(kinds, kind)
			}
		}
	}
	return slices.DeleteFunc(kinds, func(kind string) bool { return known[kind] > 1 })
}

// contenders are the engines' communicators of this process's i-th rank: one,
// unless engines are compared.
func (s *session) contenders(i int) []Comm {
	all := []Comm{s.world.Comms[i]}
	if s.cfg.Versus == "" {
		return all
	}
	for _, r := range s.world.Against {
		all = append(all, r.Comms[i])
	}
	return all
}

// moder is the engine that knows a kind of memory; nil for plain memory.
func (w *worker) moder(kind string) ModeSetter {
	if kind == plain {
		return nil
	}
	for _, c := range w.contenders(w.i) {
		if m, ok := c.(ModeSetter); ok && slices.Contains(m.Modes()[1:], kind) {
			return m
		}
	}
	return nil
}

// allocate makes the buffers, n bytes each.
func (w *worker) allocate(n int) error {
	w.kinds = nil
	for _, kind := range w.kindsOf(w.i) {
		w.kinds = append(w.kinds, buffers{kind: kind})
		k := &w.kinds[len(w.kinds)-1]
		for _, b := range []*buffer{&k.send, &k.recv} {
			var err error
			if m := w.moder(kind); m != nil {
				b.mem, err = m.AllocMode(kind, n)
			} else {
				b.mem, err = w.comm.Alloc(n)
			}
			if err != nil {
				return fmt.Errorf("%s memory: %w", kind, err)
			}
		}
	}
	w.buffers = w.kinds[0]
	return nil
}

// close gives the buffers back.
func (w *worker) close() {
	if l := w.medium.lane; l != nil && w.report != nil {
		if free, total, err := l.Memory(); err == nil {
			w.report.total = total - free // for -M, in which a dead device shows nothing
		}
	}
	for _, k := range w.kinds {
		for _, b := range []*buffer{&k.send, &k.recv} {
			switch m := w.moder(k.kind); {
			case b.mem == nil:
			case m != nil:
				m.FreeMode(k.kind, b.mem)
			default:
				w.comm.Free(b.mem)
			}
		}
	}
	w.kinds = nil
}
