package recipe

import "slices"

// Hashes identify a stage and its steps by their inputs: everything below a step in its stage,
// and the stages that it uses. Stages and steps with the same hash are the same vertices for
// BuildKit, in whatever recipes they occur.
type Hashes struct {
	Stage string
	Steps []string
}

// Hashes returns the hashes of each stage, by name, for a builder with the given native platform.
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
				step, below = st, "" // its layer does not depend on what is below
			}
			steps[i] = hashOf(on, below, step.kind(), step)
			state = hashOf(state, steps[i])
		}
		all[s.Name] = Hashes{Stage: state, Steps: steps}
	}
	return all
}

// Below returns the recipe of what is below step n of a stage: its first n steps, and the stages
// that they need. It excludes what only other stages need.
func (r *Recipe) Below(stage string, n int) *Recipe {
	out := *r
	out.Stages = nil
	need := map[string]bool{stage: true}
	for i := len(r.Stages) - 1; i >= 0; i-- {
		s := r.Stages[i]
		if !need[s.Name] {
			continue
		}
		if s.Name == stage {
			s.Steps = s.Steps[:n:n]
		}
		for _, src := range s.Sources() {
			if src.Kind == FromStage {
				need[src.Ref] = true
			}
		}
		out.Stages = append(out.Stages, s)
	}
	slices.Reverse(out.Stages)
	return &out
}

// Sources returns what a stage starts from, copies and mounts.
func (s Stage) Sources() []Source {
	all := []Source{s.From}
	for _, st := range s.Steps {
		switch st := st.(type) {
		case Run:
			for _, m := range st.Mounts {
				all = append(all, m.From)
			}
		case Copy:
			all = append(all, st.From)
		}
	}
	return all
}

// StageHashes returns the hashes of all stages except the last one, the image, on a builder of
// the recipe's own platform.
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
