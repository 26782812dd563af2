package session

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport/shm"
)

// Open opens the connections between ranks that have agreed on everything else. All ranks call it.
// lane keeps the connections apart from others of the Session. After an error the Links are to be
// closed all the same, when the other ranks know of the error: before that, this rank would look
// dead to them.
func (s *Session) Open(ctx context.Context, lane string) (*Links, error) {
	l := &Links{Session: s, lane: lane}
	return l, l.open(ctx)
}

func (l *Links) open(ctx context.Context) error {
	*l = Links{Session: l.Session, lane: l.lane}
	if l.cfg.Size > 1 {
		l.infos = make([]peerInfo, l.cfg.Size)
		l.channels = 2 * l.Env.Channels() // double trees need two per channel
	}
	l.init()
	if l.cfg.Size == 1 {
		return nil
	}
	return l.endpoints(ctx)
}

// key returns a secret that the ranks share, for the purpose that label names; each lane has its
// own.
func (l *Links) key(label string) []byte { return l.cfg.Boot.Key(l.lane + label) }

// endpoints creates the endpoints, exchanges what peers need to know, and chooses an endpoint for
// each peer. Both ends of every pair must choose the same one, so the choice depends only on what
// all ranks know.
func (l *Links) endpoints(ctx context.Context) error {
	var err error
	local := l.Env.Hosts[l.Places[l.cfg.Rank].Host]
	if l.Env.Network() {
		if err := l.openNetwork(ctx, local); err != nil {
			return err
		}
	}
	if !l.Env.SHMDisable {
		o := shm.Options{Rank: l.cfg.Rank, Ranks: l.cfg.Size, Channels: l.channels + 1, Slot: l.Env.Slot, Host: l.found[l.cfg.Rank].Host, Secret: binary.LittleEndian.Uint64(l.key("shm"))}
		if l.Env.P2P {
			o.Direct = l.cfg.Fault
		}
		if l.shm, err = shm.New(o); err != nil {
			l.cfg.Log.Warnf("no shared memory: %v", err)
			l.shm = nil
		}
	}
	switch err := l.share(ctx, local); {
	case err == errNoSharedMemory:
		if l.cfg.Rank == 0 {
			l.cfg.Log.Warnf("the ranks of this host cannot share memory with one another, and use the network, as with NCCL_SHM_DISABLE=1")
		}
		if err := l.Close(); err != nil {
			return err
		}
		l.Env.SHMDisable = true
		l.Env.Merge(l.found)
		return l.open(ctx)
	case err != nil:
		return err
	}
	if err := l.openCollNet(ctx); err != nil {
		return err
	}
	if l.shm != nil && len(local) == l.cfg.Size && l.infos[(l.cfg.Rank+1)%l.cfg.Size].near {
		l.shmInfos = make([][]byte, l.cfg.Size)
		for r := range l.infos {
			l.shmInfos[r] = l.infos[r].shm
		}
	}
	l.Waiter = l.spinner(local)
	return nil
}

// share exchanges the endpoints' descriptions, and then whether shared memory works on every
// host: either all ranks of a host use it or none does.
func (l *Links) share(ctx context.Context, local []int) error {
	var mine []byte
	var infos [2][]byte
	if l.shm != nil {
		infos[0] = l.shm.Info()
	}
	if l.net != nil {
		infos[1] = l.net.Info()
	}
	for _, b := range infos {
		mine = append(binary.LittleEndian.AppendUint32(mine, uint32(len(b))), b...)
	}
	all, err := l.cfg.Boot.AllGather(ctx, mine)
	if err != nil {
		return err
	}
	for r, b := range all {
		for _, to := range []*[]byte{&l.infos[r].shm, &l.infos[r].net} {
			if len(b) < 4 || int(binary.LittleEndian.Uint32(b)) > len(b)-4 {
				return l.errorOf(op.InternalError, "rank %d sent a damaged description", r)
			}
			n := int(binary.LittleEndian.Uint32(b))
			*to, b = b[4:4+n], b[4+n:]
		}
	}
	if l.Tuner, err = l.Env.Tuner(); err != nil {
		return l.together(ctx, l.errorOf(op.InvalidUsage, "choosing algorithms: %w", err))
	}
	if l.cfg.Rank == 0 && l.Tuner.Warning != "" {
		l.cfg.Log.Warnf("%s", l.Tuner.Warning)
	}
	works, err := Exchange(ctx, l.cfg.Boot, l.tryShm(local))
	if err != nil {
		return err
	}
	usable := uint8(1)
	for _, r := range local {
		usable &= works[r]
	}
	for _, r := range local {
		l.infos[r].near = usable == 1 && r != l.cfg.Rank
	}
	if usable == 0 && len(local) > 1 && l.net == nil {
		return errNoSharedMemory
	}
	return nil
}

// errNoSharedMemory: all ranks are on one host, and all know that shared memory does not work there.
var errNoSharedMemory = errors.New("the ranks of this host cannot share memory with one another")

// tryShm opens and tests the shared memory of the next rank on the host. It returns 1 if that works.
func (l *Links) tryShm(local []int) uint8 {
	if l.shm == nil {
		return 0
	}
	next := local[(slices.Index(local, l.cfg.Rank)+1)%len(local)]
	err := l.shm.Reach(next, l.infos[next].shm)
	if err == nil {
		err = l.shm.Try(next, l.infos[next].shm)
	}
	if err != nil {
		l.cfg.Log.Warnf("no shared memory with rank %d: %v", next, err)
		return 0
	}
	return 1
}
