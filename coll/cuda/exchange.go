package cuda

import (
	"github.com/assay-hpc/assay/coll/op"
)

// An exchange turns Sends and Recvs into kernels. Two ranks know the messages between them,
// but not what else the other rank does. So everything that both must do alike depends only on
// a message's length and on its number among the messages between them.
//
// The first messages between any two ranks come first, then the second ones, and so on; among
// each of these, shorter messages come before longer ones. All ranks use this order, so no
// rank waits for a kernel that is behind one that waits for this rank.
type exchange struct {
	rank      int
	chooser   *chooser
	copies    bool // copy engines can be used
	transfers []op.Transfer
	keys      []key // by transfer
	rounds    int
	at        key // of the next kernel
}

type key struct {
	round int
	class int // of classes
}

// classes are the kernels of messages, in launch order. The last class is for all else.
var classes = [...]kernel{exchangeLL, exchangeLL128, copies, exchangeSimple}

// signExchange is the sign of Sends and Recvs, which differs from every collective's.
const signExchange = uint32(op.NumCollectives) << 28

// exchangeChunk is the step of all messages in chunks, regardless of their length.
const exchangeChunk = 128 << 10

// start begins with new transfers, which must stay until next has returned false.
func (x *exchange) start(transfers []op.Transfer) {
	var sent, received [maxRanks]int
	x.transfers, x.keys, x.rounds, x.at = transfers, x.keys[:0], 0, key{}
	for i := range transfers {
		t := &transfers[i]
		n := &received[t.Peer]
		if t.Send {
			n = &sent[t.Peer]
		}
		x.keys = append(x.keys, key{*n, classOf(x.choose(t).kernel)})
		*n++
		x.rounds = max(x.rounds, *n)
	}
}

func classOf(k kernel) int {
	for i, c := range classes {
		if c == k {
			return i
		}
	}
	return len(classes) - 1
}

func (x *exchange) choose(t *op.Transfer) choice {
	c := x.chooser.choose(op.SendRecv, len(t.Data))
	if c.kernel == copies {
		if x.copies && t.Peer != x.rank { // slots are for other ranks
			c.chunk = x.chooser.copyStep()
			return c
		}
		c = x.chooser.chooseWithout(withoutCopies, op.SendRecv, len(t.Data))
	}
	c.threads = x.chooser.warps(exchangeThreads)
	if kernelTable[c.kernel].protocol == simple {
		c.threads = max(c.threads, 32*servedWarps)
		c.chunk = x.chooser.step(exchangeChunk, c.threads)
	}
	return c
}

// next writes the arguments of the next kernel. It returns false if there is none.
func (x *exchange) next(a *argsABI) (choice, bool) {
	for ; x.at.round < x.rounds; x.at = x.at.after() {
		var c choice
		for i := range x.transfers {
			if x.keys[i] != x.at {
				continue
			}
			t := &x.transfers[i]
			m := x.choose(t)
			if c.kernel == noKernel {
				*a = argsABI{root: op.NoPeer, sign: signExchange}
				c = m
			}
			c.channels = max(c.channels, m.channels)
			if t.Send {
				a.in[t.Peer], a.send[t.Peer], a.to[t.Peer] = uint64(op.Addr(t.Data)), uint64(len(t.Data)), uint8(m.channels)
			} else {
				a.out[t.Peer], a.recv[t.Peer], a.from[t.Peer] = uint64(op.Addr(t.Data)), uint64(len(t.Data)), uint8(m.channels)
			}
		}
		if c.kernel != noKernel {
			a.channels, a.chunk = uint32(c.channels), uint32(c.chunk)
			for p := range maxRanks {
				if a.in[p] != 0 && a.in[p] == a.out[p] && a.send[p] == a.recv[p] {
					a.inPlace = 1
				}
			}
			x.at = x.at.after()
			return c, true
		}
	}
	return choice{}, false
}

func (k key) after() key {
	if k.class++; k.class == len(classes) {
		k.round, k.class = k.round+1, 0
	}
	return k
}
