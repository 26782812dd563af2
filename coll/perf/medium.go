package perf

// A medium is where a rank's buffers are. It alone touches their bytes.
type medium struct {
	lane Lane  // nil: the processor's memory
	bad  int64 // wrong elements that the processor has found
}

// fill writes a layout into memory. On a device it is enqueued.
func (m *medium) fill(im layout, mem []byte) error {
	if m.lane == nil {
		im.fill(mem)
		return nil
	}
	return im.pieces(mem, func(s segment, mem []byte, phase int64) error {
		return m.lane.Fill(mem, s.p.data, phase)
	})
}

// compare counts the elements of memory that are not as in the layout, for
// wrong to return.
func (m *medium) compare(im layout, mem []byte) error {
	if m.lane == nil {
		m.bad += im.wrong(mem)
		return nil
	}
	return im.pieces(mem, func(s segment, mem []byte, phase int64) error {
		return m.lane.Compare(mem, s.p.data, phase, s.p.t.Size(), s.p.slack)
	})
}

// wrong is what was counted since it was last called.
func (m *medium) wrong() (int64, error) {
	if m.lane != nil {
		return m.lane.Wrong()
	}
	n := m.bad
	m.bad = 0
	return n, nil
}

// settle returns when memory holds what it was filled with.
func (m *medium) settle() error {
	if m.lane == nil {
		return nil
	}
	return m.lane.Wait()
}
