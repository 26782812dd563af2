package perf

import (
	"fmt"
	"slices"
)

// plain is the kind of memory that Alloc returns.
const plain = "plain"

// symmetric is the mode that -R 2 asks for.
const symmetric = "symmetric"

// kindsOf returns the kinds of memory that a rank measures on: one, or, when engines are
// compared, plain memory and every kind that exactly one engine knows. Memory of a kind that
// several engines know belongs to one of them and does not work for the others. All ranks get the
// same result.
func (s *session) kindsOf(i int) []string {
	own := s.world.Comms[i]
	if s.cfg.Versus == "" {
		m, ok := own.(ModeSetter)
		_, registers := own.(Registrar)
		if s.cfg.Register == 2 && (registers || ok && slices.Contains(m.Modes(), symmetric)) {
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

// contenders returns the engines' communicators of this process's i-th rank: one, unless engines
// are compared.
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

// moder returns the engine that knows a kind of memory; nil for plain memory.
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

// registrars are the engines that register memory of a kind which they did not allocate.
func (w *worker) registrars(kind string) (all []Registrar) {
	if kind != symmetric {
		return nil
	}
	for _, c := range w.contenders(w.i) {
		if r, ok := c.(Registrar); ok {
			all = append(all, r)
		}
	}
	return all
}

// allocate allocates the buffers, n bytes each.
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
			for _, r := range w.registrars(kind) {
				if err == nil {
					err = r.Register(b.mem)
				}
			}
			if err != nil {
				return fmt.Errorf("%s memory: %w", kind, err)
			}
		}
	}
	w.buffers = w.kinds[0]
	return nil
}

// close frees the buffers.
func (w *worker) close() {
	if l := w.medium.lane; l != nil && w.report != nil {
		if free, total, err := l.Memory(); err == nil {
			w.report.total = total - free // for -M; a device that is dead shows nothing there
		}
	}
	for _, k := range w.kinds {
		for _, b := range []*buffer{&k.send, &k.recv} {
			if b.mem != nil {
				for _, r := range w.registrars(k.kind) {
					r.Deregister(b.mem)
				}
			}
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
