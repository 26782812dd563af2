package cuda

import (
	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
)

// A Tuner is an executor that determines by measurement how operations are best done.
type Tuner interface {
	// Tune calls measure for the candidate choices at each of some ascending sizes, with the
	// choice in force, and returns rows of the fastest ones. Sizes are as op.Op.Bytes counts
	// them. All ranks call it with the same arguments, and measure must return the same on all
	// of them: microseconds, or 0 if the choice could not be measured. A choice may turn out
	// to be impossible; Enqueue then returns an error of InvalidArgument.
	Tune(c op.Collective, sizes []int, measure func(choice string, bytes int) (micros float64, err error)) ([]choose.Row, error)
}

const (
	leastChunked = 128 << 10 // shorter messages do not use chunks
	leastCopied  = 4 << 20   // shorter messages do not use copy engines
	leastPacket  = 512       // bytes per channel
)

// tune implements Tuner.Tune.
func (ch *chooser) tune(c op.Collective, sizes []int, measure func(choice string, bytes int) (float64, error)) ([]choose.Row, error) {
	before := ch.force
	defer func() { ch.force = before }()
	s := choose.Search[choice]{
		Coarse: func(bytes int) []choice { return ch.coarse(c, bytes) },
		Like:   func(k choice, bytes int) []choice { return ch.like(c, k, bytes) },
		Limit:  ch.limit,
		Blocks: func(k choice) int { return k.channels * kernelTable[k.kernel].roles },
		Can: func(k choice, bytes int) bool {
			return ch.permitted(c, k.kernel, bytes) && ch.fits(c, ch.shape(c, k, bytes), bytes)
		},
		Time: func(k choice, bytes int) (float64, error) {
			ch.force = k
			return measure(k.String(), bytes)
		},
	}
	return s.Rows(sizes)
}

// coarse returns choices of every kernel with every number of channels.
func (ch *chooser) coarse(c op.Collective, bytes int) (out []choice) {
	threads, chunk := 256, 64<<10
	if c == op.SendRecv { // all its messages are cut the same way
		threads, chunk = exchangeThreads, exchangeChunk
	}
	for k := range numWays {
		switch {
		case !k.does(c):
		case k == nvidia:
			if ch.library {
				out = append(out, choice{kernel: nvidia})
			}
		case k == copies:
			out = append(out, ch.copies(c, bytes)...)
		case kernelTable[k].protocol == simple:
			for _, channels := range [...]int{8, 12, 16, 24, 32, 48, 64} { // limit may reduce them
				if bytes >= leastChunked {
					out = append(out, choice{k, channels, exchangeThreads, chunk})
				}
			}
		case ch.isShort(c, k, bytes): // with as many channels and threads as it needs
			out = append(out, choice{k, 1, 32, 0})
		default:
			for channels := 1; channels <= packetChannels && (channels == 1 || channels*leastPacket <= bytes); channels *= 2 {
				out = append(out, choice{k, channels, threads, 0})
			}
		}
	}
	return out
}

// copies returns the choices with copy engines. Their blocks, which reduce data or move it to
// its place, must keep up with the link.
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

// isShort reports whether a kernel does an operation as a short one.
func (ch *chooser) isShort(c op.Collective, k kernel, bytes int) bool {
	_, ok := ch.short(c, choice{k, 1, 32, 0}, bytes)
	return ok
}

// like returns the choices of the same kernel and channels.
func (ch *chooser) like(c op.Collective, k choice, bytes int) (out []choice) {
	if c == op.SendRecv || k.kernel == copies || k.kernel == nvidia || ch.isShort(c, k.kernel, bytes) {
		return nil
	}
	if kernelTable[k.kernel].protocol != simple {
		for threads := 64; threads <= exchangeThreads; threads *= 2 {
			out = append(out, choice{k.kernel, k.channels, threads, k.chunk})
		}
		return out
	}
	for _, threads := range []int{256, 512} {
		// Steps longer than the bytes of a channel are all alike.
		for chunk := 16 << 10; chunk <= 128<<10 && (chunk == 16<<10 || chunk*k.channels < 2*bytes); chunk *= 2 {
			out = append(out, choice{k.kernel, k.channels, threads, chunk})
		}
	}
	return out
}
