package cuda

import (
	"cmp"
	"math"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/tuning"
)

// A Tuner is an executor that finds out by measuring how operations are
// best done.
type Tuner interface {
	// Tune calls measure for choices that come into question at each of some
	// ascending sizes, with the choice in force, and makes rules of the fastest
	// ones. Sizes are as in entry. All ranks call it alike, and measure returns
	// the same on all of them: microseconds, or 0 where it could not be done.
	// A choice that measure is called with may be impossible; then Enqueue
	// returns an error of InvalidArgument.
	Tune(c op.Collective, sizes []int, measure func(choice string, bytes int) (micros float64, err error)) ([]tuning.GPURule, error)
}

// A finding is a choice that was measured.
type finding struct {
	choice
	bytes  int
	micros float64
}

const (
	// better is how much faster a choice has to be than that of the size
	// before: what is not is noise.
	better = 0.98
	// near is how much slower than the fastest a choice may be for others like
	// it to come into question.
	near  = 1.5
	likes = 3 // of so many at most

	leastChunked = 128 << 10 // shorter messages are not done in chunks
	leastCopied  = 4 << 20   // nor by copy engines
	leastPacket  = 512       // bytes of a channel
	// steady is from where on bandwidth decides: what is best for so long a
	// message is best for all longer ones.
	steady = 64 << 20
)

// tune is Tuner's Tune.
func (ch *chooser) tune(c op.Collective, sizes []int, measure func(choice string, bytes int) (float64, error)) ([]tuning.GPURule, error) {
	before := ch.force
	defer func() { ch.force = before }()
	var all []finding
	var last choice
	for _, bytes := range sizes {
		s := search{chooser: ch, coll: c, bytes: bytes, measure: measure}
		f, err := s.best(last)
		if err != nil {
			return nil, err
		}
		if f.kernel != noKernel {
			last = f.choice
			all = append(all, f)
		}
	}
	return merge(all), nil
}

// A search is for what is best for a collective of one size.
type search struct {
	*chooser
	coll    op.Collective
	bytes   int
	measure func(choice string, bytes int) (float64, error)
	found   []finding // each choice once
}

// best tries a coarse grid, and then what is like the best of it. last is what
// was best at the size before.
func (s *search) best(last choice) (finding, error) {
	for _, k := range s.coarse() {
		if _, err := s.try(k); err != nil {
			return finding{}, err
		}
	}
	for _, f := range s.fastest(likes) {
		for _, k := range s.like(f.choice) {
			if _, err := s.try(k); err != nil {
				return finding{}, err
			}
		}
	}
	top := s.fastest(1)
	if len(top) == 0 {
		return finding{}, nil
	}
	if last.kernel == noKernel || top[0].choice == last {
		return top[0], nil
	}
	old, err := s.try(last)
	if err != nil || old.micros == 0 {
		return top[0], err
	}
	// The fastest of many has been lucky: the two are compared once more.
	for _, f := range []*finding{&old, &top[0]} {
		micros, err := s.time(f.choice)
		if err != nil {
			return finding{}, err
		}
		if micros > 0 {
			f.micros = max(f.micros, micros)
		}
	}
	if top[0].micros < better*old.micros {
		return top[0], nil
	}
	return old, nil
}

// try measures a choice, if it is possible and was not measured yet. Its time
// is 0 where it cannot be done.
func (s *search) try(k choice) (finding, error) {
	k = s.limit(k)
	if i := slices.IndexFunc(s.found, func(f finding) bool { return f.choice == k }); i >= 0 {
		return s.found[i], nil
	}
	f := finding{choice: k, bytes: s.bytes}
	if !s.permitted(s.coll, k.kernel, s.bytes) || !s.fits(s.coll, k, s.bytes) {
		return f, nil
	}
	micros, err := s.time(k)
	f.micros = micros
	s.found = append(s.found, f)
	return f, err
}

// time measures with a choice in force.
func (s *search) time(k choice) (float64, error) {
	s.force = k
	return s.measure(k.String(), s.bytes)
}

// fastest are the n fastest so far, less those that are far behind.
func (s *search) fastest(n int) []finding {
	done := slices.DeleteFunc(slices.Clone(s.found), func(f finding) bool { return f.micros <= 0 })
	slices.SortStableFunc(done, func(a, b finding) int { return cmp.Compare(a.micros, b.micros) })
	done = slices.DeleteFunc(done, func(f finding) bool { return f.micros > near*done[0].micros })
	return done[:min(n, len(done))]
}

// coarse are choices of every kernel with every number of channels.
func (s *search) coarse() (out []choice) {
	threads, chunk := 256, 64<<10
	if s.coll == op.SendRecv { // its messages are all cut in one way
		threads, chunk = exchangeThreads, exchangeChunk
	}
	for k := range numKernels {
		switch {
		case !does(k, s.coll):
		case k == copies:
			out = append(out, s.copies(k)...)
		case kernelInfo[k].protocol == simple:
			for _, channels := range [...]int{8, 16, 24, 32, 48, 64} { // s.limit has the last word
				if s.bytes >= leastChunked {
					out = append(out, choice{k, channels, exchangeThreads, chunk})
				}
			}
		default:
			for channels := 1; channels <= packetChannels && (channels == 1 || channels*leastPacket <= s.bytes); channels *= 2 {
				out = append(out, choice{k, channels, threads, 0})
			}
		}
	}
	return out
}

// copies are those of the copy engines. Blocks must keep up with the link in
// what they reduce, or move to its place.
func (s *search) copies(k kernel) (out []choice) {
	if s.bytes < leastCopied {
		return nil
	}
	most := s.copyChunk(s.coll)
	for _, blocks := range [...]int{32, 64, 128} {
		if s.coll == op.SendRecv {
			out = append(out, choice{k, blocks, exchangeThreads, s.copyStep()})
			continue
		}
		for chunk := 4 << 20; chunk < min(most, s.bytes); chunk *= 2 {
			out = append(out, choice{k, blocks, exchangeThreads, chunk})
		}
		if s.bytes > most {
			out = append(out, choice{k, blocks, exchangeThreads, most})
		}
	}
	return out
}

// like are choices of the same kernel and channels.
func (s *search) like(k choice) (out []choice) {
	if s.coll == op.SendRecv || k.kernel == copies {
		return nil
	}
	if kernelInfo[k.kernel].protocol != simple {
		for threads := 64; threads <= exchangeThreads; threads *= 2 {
			out = append(out, choice{k.kernel, k.channels, threads, k.chunk})
		}
		return out
	}
	for _, threads := range []int{256, 512} {
		// Longer steps than a channel has bytes are all the same.
		for chunk := 16 << 10; chunk <= 128<<10 && (chunk == 16<<10 || chunk*k.channels < 2*s.bytes); chunk *= 2 {
			out = append(out, choice{k.kernel, k.channels, threads, chunk})
		}
	}
	return out
}

// merge makes rules: one for neighbours with the same choice.
func merge(all []finding) []tuning.GPURule {
	var out []tuning.GPURule
	for _, f := range all {
		r := tuning.GPURule{UpTo: int64(f.bytes), Choice: f.choice.String(), Micros: math.Round(f.micros*1e3) / 1e3}
		if n := len(out); n > 0 && out[n-1].Choice == r.Choice {
			out[n-1] = r
			continue
		}
		out = append(out, r)
	}
	if n := len(out); n > 0 && out[n-1].UpTo >= steady {
		out[n-1].UpTo = 0
	}
	return out
}
