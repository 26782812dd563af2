package perf

// A medium is the memory of a rank's buffers. Only its methods touch their bytes.
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

// compare counts the elements of memory that differ from the layout. wrong returns the count.
func (m *medium) compare(im layout, mem []byte) error {
	if m.lane == nil {
		m.bad += im.wrong(mem)
		return nil
	}
	return im.pieces(mem, func(s segment, mem []byte, phase int64) error {
		return m.lane.Compare(mem, s.p.data, phase, s.p.t.Size(), s.p.slack)
	})
}

// wrong returns the count since it was last called.
func (m *medium) wrong() (int64, error) {
	if m.lane != nil {
		return m.lane.Wrong()
	}
	n := m.bad
	m.bad = 0
	return n, nil
}

// settle returns when all fills are complete.
func (m *medium) settle() error {
	if m.lane == nil {
		return nil
	}
	return m.lane.Wait()
}
