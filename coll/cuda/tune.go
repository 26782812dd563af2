package cuda

import (
	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
)

// A Tuner is an executor that finds out by measuring how operations are
// best done.
type Tuner interface {
	// Tune calls measure for choices that come into question at each of some ascending
	// sizes, with the choice in force, and makes rows of the fastest ones. Sizes are
	// as op.Op.Bytes counts them. All ranks call it alike, and measure returns the
	// same on all of them: microseconds, or 0 where it could not be done. A choice
	// that measure is called with may be impossible; then Enqueue returns an error of
	// InvalidArgument.
	Tune(c op.Collective, sizes []int, measure func(choice string, bytes int) (micros float64, err error)) ([]choose.Row, error)
}

const (
	leastChunked = 128 << 10 // shorter messages are not done in chunks
	leastCopied  = 4 << 20   // nor by copy engines
	leastPacket  = 512       // bytes of a channel
)

// tune is Tuner's Tune.
func (ch *chooser) tune(c op.Collective, sizes []int, measure func(choice string, bytes int) (float64, error)) ([]choose.Row, error) {
	before := ch.force
	defer func() { ch.force = before }()
	s := choose.Search[choice]{
		Coarse: func(bytes int) []choice { return ch.coarse(c, bytes) },
		Like:   func(k choice, bytes int) []choice { return like(c, k, bytes) },
		Limit:  ch.limit,
		Can:    func(k choice, bytes int) bool { return ch.permitted(c, k.kernel, bytes) && ch.fits(c, k, bytes) },
		Time: func(k choice, bytes int) (float64, error) {
			ch.force = k
			return measure(k.String(), bytes)
		},
	}
	return s.Rows(sizes)
}

// coarse are choices of every kernel with every number of channels.
func (ch *chooser) coarse(c op.Collective, bytes int) (out []choice) {
	threads, chunk := 256, 64<<10
	if c == op.SendRecv { // its messages are all cut in one way
		threads, chunk = exchangeThreads, exchangeChunk
	}
	for k := range numKernels + 1 {
		switch {
		case !does(k, c):
		case k == nvidia:
			if ch.library {
				out = append(out, choice{kernel: nvidia})
			}
		case k == copies:
			out = append(out, ch.copies(c, bytes)...)
		case kernelInfo[k].protocol == simple:
			for _, channels := range [...]int{8, 16, 24, 32, 48, 64} { // limit has the last word
				if bytes >= leastChunked {
					out = append(out, choice{k, channels, exchangeThreads, chunk})
				}
			}
		default:
			for channels := 1; channels <= packetChannels && (channels == 1 || channels*leastPacket <= bytes); channels *= 2 {
				out = append(out, choice{k, channels, threads, 0})
			}
		}
	}
	return out
}

// copies are those of the copy engines. Blocks must keep up with the link in
// what they reduce, or move to its place.
func (ch *chooser) copies(c op.Collective, bytes int) (out []choice) {
	if bytes < leastCopied {
		return nil
	}
	most := ch.copyChunk(c)
	for _, blocks := range [...]int{32, 64, 128} {
		if c == op.SendRecv {
			out = append(out, choice{copies, blocks, exchangeThreads, ch.copyStep()})
			continue
		}
		for chunk := 4 << 20; chunk < min(most, bytes); chunk *= 2 {
			out = append(out, choice{copies, blocks, exchangeThreads, chunk})
		}
		if bytes > most {
			out = append(out, choice{copies, blocks, exchangeThreads, most})
		}
	}
	return out
}

// like are choices of the same kernel and channels.
func like(c op.Collective, k choice, bytes int) (out []choice) {
	if c == op.SendRecv || k.kernel == copies || k.kernel == nvidia {
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
		for chunk := 16 << 10; chunk <= 128<<10 && (chunk == 16<<10 || chunk*k.channels < 2*bytes); chunk *= 2 {
			out = append(out, choice{k.kernel, k.channels, threads, chunk})
		}
	}
	return out
}
