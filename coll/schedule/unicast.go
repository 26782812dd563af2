package schedule

// unicast replaces each message to Everyone by one message to each rank, on the connections that
// other messages use, too. In the two-shot algorithms different lanes would then use the same
// connection: there the lanes are merged into one, and windows overlap only through several
// channels.
func (s *Schedule) unicast() {
	program, n := s.Program, s.Ranks
	s.Program = func(rank int) Program {
		p := program(rank)
		lanes := p.Lanes
		p.Lanes = nil
		for _, l := range lanes {
			steps := toEach(l.Steps, rank, n)
			last := len(p.Lanes) - 1
			if s.Algorithm == TwoShot && last >= 0 && p.Lanes[last].Channel == l.Channel {
				p.Lanes[last].Steps = append(p.Lanes[last].Steps, steps...)
			} else {
				p.Lanes = append(p.Lanes, Lane{l.Channel, steps})
			}
		}
		return p
	}
}

// toEach expands the steps that send to Everyone. Each such step stores its value, or sends a
// block unchanged; the other ranks' messages are loaded from there.
func toEach(steps []Step, rank, n int) []Step {
	var each []Step
	for _, st := range steps {
		st.Multi = false
		if st.Send != Everyone {
			each = append(each, st)
			continue
		}
		from := st.Dst
		if from.Buf == NoBuf {
			from = st.A
		}
		each = append(each, st.send(int32(mod(rank+1, n))))
		for k := 2; k < n; k++ {
			each = append(each, do(st.Data).load(from).send(int32(mod(rank+k, n))))
		}
	}
	return each
}
