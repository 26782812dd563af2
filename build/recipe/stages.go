package recipe

// StageHashes identifies the stages but the last, the image, by what they are made
// of, the stages that they use included: stages of one hash, of whatever recipes,
// are the same vertices for BuildKit.
func (r *Recipe) StageHashes() map[string]string {
	sums := map[string]string{}
	resolve := func(s Source) Source {
		if s.Kind == FromStage {
			s.Ref = sums[s.Ref]
		}
		return s
	}
	for _, s := range r.Stages[:len(r.Stages)-1] {
		name := s.Name
		s.Name, s.From = "", resolve(s.From)
		steps := make([]Step, len(s.Steps))
		for i, step := range s.Steps {
			switch st := step.(type) {
			case Run:
				mounts := make([]Mount, len(st.Mounts))
				for k, m := range st.Mounts {
					m.From = resolve(m.From)
					mounts[k] = m
				}
				st.Mounts = mounts
				step = st
			case Copy:
				st.From = resolve(st.From)
				step = st
			}
			steps[i] = step
		}
		s.Steps = steps
		h := newHasher()
		h.add(r.Platform)
		h.stage(s)
		sums[name] = h.sum()
	}
	return sums
}
