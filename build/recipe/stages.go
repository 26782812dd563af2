package recipe

// Hashes identify a stage and its steps by what they are made of: whatever lies
// below a step in its stage, and the stages that it uses. Stages and steps of one
// hash, of whatever recipes, are the same vertices for BuildKit.
type Hashes struct {
	Stage string
	Steps []string
}

// Hashes returns those of each stage, by its name, where the builder's own
// platform is native.
func (r *Recipe) Hashes(native Platform) map[string]Hashes {
	all := map[string]Hashes{}
	resolve := func(s Source) Source {
		if s.Kind == FromStage {
			s.Ref = all[s.Ref].Stage
		}
		return s
	}
	for _, s := range r.Stages {
		on := r.Platform
		if s.Native {
			on = native
		}
		state := hashOf(on, resolve(s.From), s.Env)
		steps := make([]string, len(s.Steps))
		for i, step := range s.Steps {
			below := state
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
				step, below = st, "" // its layer is the same whatever lies below
			}
			steps[i] = hashOf(on, below, step.kind(), step)
			state = hashOf(state, steps[i])
		}
		all[s.Name] = Hashes{Stage: state, Steps: steps}
	}
	return all
}

// StageHashes are the hashes of the stages but the last, the image, on a builder
// of the recipe's own platform.
func (r *Recipe) StageHashes() map[string]string {
	sums := map[string]string{}
	all := r.Hashes(r.Platform)
	for _, s := range r.Stages[:len(r.Stages)-1] {
		sums[s.Name] = all[s.Name].Stage
	}
	return sums
}

func hashOf(parts ...any) string {
	h := newHasher()
	h.add(parts)
	return h.sum()
}
