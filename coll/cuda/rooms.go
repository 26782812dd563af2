//go:build cuda && cgo

package cuda

import (
	"encoding/binary"

	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
)

// Rooms are made, and opened to others, by the first operation that copies.

// swap is what a rank does before Sends and Recvs with those peers with which
// some are for copies, and rooms are not open yet. Both ends of a message know
// alike.
func (k *copier) swap(o *op.Op) (s executor.Swap) {
	e := k.e
	if o.Coll != op.SendRecv || !e.copying {
		return s
	}
	known := k.opened | k.shut | 1<<e.cfg.Rank
	for i := range o.Transfers {
		t := &o.Transfers[i]
		if known>>t.Peer&1 == 0 && e.chooser.choose(op.SendRecv, len(t.Data)).kernel == copies {
			known |= 1 << t.Peer
			s.Peers, s.Recv = append(s.Peers, t.Peer), append(s.Recv, make([]byte, offerBytes))
		}
	}
	if len(s.Peers) > 0 {
		s.Host, s.Send = e.cfg.Host, k.offer()
	}
	return s
}

// What an offer says beside yes (1) and no (0): while its stream is captured a
// rank cannot allocate.
const later = 2

// offerBytes is how long an offer is on the way.
var offerBytes = binary.Size(offer{})

// offer makes this rank's room, and all else that the copier needs, and gives
// what others are to have of it.
func (k *copier) offer() []byte {
	e := k.e
	err := e.dev.in(func() error {
		if k.room.own != 0 {
			return nil
		}
		captured, err := e.stream.Capturing()
		if captured || err != nil {
			k.mine = offer{OK: later}
			return err
		}
		if k.mine, err = k.room.offer(e.cfg, e.dev, copyRoom); err != nil {
			return err
		}
		k.mine.OK = 1
		k.room.at = make([]driver.Ptr, e.cfg.Size)
		k.room.at[e.cfg.Rank] = k.room.own
		return k.prepare()
	})
	if err != nil {
		e.cfg.Log.Infof(debug.Init, "rank %d: no copy engines for large messages: %v", e.cfg.Rank, err)
		k.mine = offer{}
	}
	b, err := binary.Append(nil, binary.LittleEndian, k.mine)
	if err != nil {
		panic(err) // it has a fixed size
	}
	return b
}

// acceptAll opens the rooms of all ranks, if all have one. offers are by rank.
// This rank's own stays until Close, used or not: giving memory back waits for
// all that runs on the device, perhaps for a kernel that waits for a rank which
// waits for this one.
func (k *copier) acceptAll(offers []byte) error {
	e := k.e
	all := make([]offer, e.cfg.Size)
	yes := true
	for r := range all {
		if _, err := binary.Decode(offers[r*offerBytes:][:offerBytes], binary.LittleEndian, &all[r]); err != nil {
			return err
		}
		yes = yes && all[r].OK == 1
		k.refused = k.refused || all[r].OK == 0
	}
	return e.dev.in(func() error {
		if !yes {
			return nil
		}
		for r := range all {
			if err := k.open(r, all[r]); err != nil {
				return err
			}
		}
		k.together = true
		return nil
	})
}

// acceptSwap opens the rooms of peers, where both have one.
func (k *copier) acceptSwap(s executor.Swap) error {
	for i, p := range s.Peers {
		var o offer
		if _, err := binary.Decode(s.Recv[i], binary.LittleEndian, &o); err != nil {
			return err
		}
		switch {
		case o.OK == 1 && k.mine.OK == 1:
			if err := k.e.dev.in(func() error { return k.open(p, o) }); err != nil {
				return err
			}
		case o.OK == 0 || k.mine.OK == 0:
			k.shut |= 1 << p
		}
	}
	return nil
}

// open opens the room of a rank.
func (k *copier) open(rank int, o offer) error {
	if rank == k.e.cfg.Rank || k.opened>>rank&1 == 1 {
		return nil
	}
	if err := k.room.openOne(k.e.dev, k.e.all, rank, o); err != nil {
		return err
	}
	k.opened |= 1 << rank
	return nil
}
