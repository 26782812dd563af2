package bootstrap

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// sharePorts is the number of ports on which rank 0 tries to listen and the others try to
// find it: strangers may occupy some of them.
const sharePorts = 8

// ShareID gives all processes of a job the ID of one new communicator. All call it, once
// for each communicator. Rank 0 also gets its Root, which closes itself. The ID is
// carried by the first of these that is available:
//
//   - NCCL_COMM_ID=host:port: the root listens there, and all ranks know the address.
//   - PMI (srun --mpi=pmi2, MPICH's hydra): the launcher's key-value space.
//   - Rank 0 listens on a port derived from data that all processes of the job know, and
//     the others try the hosts where it may be. Both sides prove that they know the job's
//     secret, and the ID is encrypted with it.
//
// The secret is ASSAY_JOB_SECRET, or else the random token of an OpenMPI job. If there is
// neither, it is derived from names and numbers that others on the network may guess, and
// o.Logf gets a warning.
func ShareID(ctx context.Context, w World, o Options) (ID, *Root, error) {
	id, h, err := w.share(ctx, o.withDefaults(), newRoot)
	root, err := rootOf(h, err) // only rank 0 has one
	return id, root, err
}

// share is ShareID for any hub.
func (w World) share(ctx context.Context, o Options, open opener) (ID, *hub, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout,
		wrapf(ErrTimeout, "%v: the communicator id was not shared within %v", w, o.Timeout))
	defer cancel()
	var call uint32
	if w.calls != nil {
		call = w.calls.Add(1)
	}
	switch {
	case w.Size <= 1 && w.commID == "":
		return idOf(open.anywhere(o))
	case w.commID != "":
		return w.shareAt(o, call, open)
	case w.pmi != nil:
		return w.sharePMI(ctx, o, call, open)
	}
	s := w.newShare(o, call)
	if w.Rank == 0 {
		return s.publish(open)
	}
	id, err := s.obtain(ctx)
	return id, nil, err
}

// Close tells a launcher that expects it that the process exits in good order. It is the
// last call on a World.
func (w World) Close() error {
	if w.pmi == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return closePMI(ctx, *w.pmi)
}

// idOf returns the ID of a hub, if there is one.
func idOf(h *hub, err error) (ID, *hub, error) {
	if err != nil {
		return ID{}, nil, err
	}
	return h.id, h, nil
}

// key derives the key of the call-th communicator from the job's secret.
func (w World) key(o Options, call uint32) []byte {
	secret := w.secret
	if len(secret) == 0 && w.Rank == 0 && call <= 1 {
		o.Logf("%v: anyone who can reach this host can guess the secret that protects the communicator's start; set %s to a random value on all ranks to prevent it", w, jobSecretVar)
	}
	return derive(secret, fmt.Sprintf("job %q call %d", w.job, call))
}

// shareAt is for an address that all ranks know.
func (w World) shareAt(o Options, call uint32, open opener) (ID, *hub, error) {
	key := w.key(o, call)
	if w.Rank != 0 {
		id, err := IDAt(w.commID, key)
		return id, nil, err
	}
	return idOf(open.at(w.commID, key, o))
}

// sharePMI lets the launcher carry the ID.
func (w World) sharePMI(ctx context.Context, o Options, call uint32, open opener) (id ID, h *hub, err error) {
	p, err := openPMI(ctx, *w.pmi)
	if err != nil {
		return ID{}, nil, err
	}
	key := fmt.Sprintf("assay-id-%d", call)
	if w.Rank == 0 {
		if id, h, err = idOf(open.anywhere(o)); err != nil {
			return ID{}, nil, err
		}
		defer func() {
			if err != nil {
				h.Close()
			}
		}()
		if err = p.put(ctx, key, hex.EncodeToString(id[:])); err != nil {
			return ID{}, nil, err
		}
	}
	if err = p.fence(ctx); err != nil || w.Rank == 0 {
		return id, h, err
	}
	value, err := p.get(ctx, key)
	if err != nil {
		return ID{}, nil, err
	}
	id, err = parseID(value)
	return id, nil, err
}

func parseID(s string) (ID, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(ID{}) {
		return ID{}, fmt.Errorf("the launcher carried %d characters that are no communicator id", len(s))
	}
	return ID(b), nil
}

// A share serves one ID, or fetches it.
type share struct {
	w     World
	o     Options
	key   []byte
	ports []uint16

	mu     sync.Mutex
	served map[int32]bool
	done   chan struct{} // closed when all ranks have the ID
}

func (w World) newShare(o Options, call uint32) *share {
	s := &share{w: w, o: o, key: w.key(o, call), served: map[int32]bool{}, done: make(chan struct{})}
	s.ports = portsOf(s.key)
	return s
}

// portsOf picks ports from 16384 to 32767: below those that Linux assigns to outgoing
// connections, above most services.
func portsOf(key []byte) []uint16 {
	var out []uint16
	for i := 0; len(out) < sharePorts; i++ {
		p := 1<<14 + binary.BigEndian.Uint16(derive(key, "port "+strconv.Itoa(i)))%(1<<14)
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// publish opens the hub, and serves its ID to the other ranks until all have it or the
// meeting is over.
func (s *share) publish(open opener) (ID, *hub, error) {
	h, err := open.anywhere(s.o)
	if err != nil {
		return ID{}, nil, err
	}
	g := s.o.gate("id of "+s.w.job, s.key, s.admit, func(to hello, c net.Conn, key []byte) { s.serve(to, c, key, h.id) })
	if err := s.listen(g); err != nil {
		h.Close()
		return ID{}, nil, err
	}
	h.running.Go(func() {
		select {
		case <-s.done:
		case <-h.over:
		}
		g.Close()
	})
	return h.id, h, nil
}

// listen uses the first port that is free on any of the addresses: all of this host, or
// those of the selected interfaces.
func (s *share) listen(g *meet.Gate) error {
	addrs := []netip.Addr{netip.IPv6Unspecified(), netip.IPv4Unspecified()}
	if s.o.Ifname != "" || s.o.Family != "" {
		list, err := meet.Interfaces(s.o.Ifname, s.o.Family)
		if err != nil {
			return err
		}
		addrs = nil
		for _, i := range list {
			addrs = append(addrs, i.Addr)
		}
	}
	var err error
	for _, port := range s.ports {
		listens := false
		for _, a := range addrs {
			if _, lerr := g.Listen(netip.AddrPortFrom(a, port).String()); lerr != nil {
				err = lerr
			} else {
				listens = true
			}
		}
		if listens {
			return nil
		}
	}
	return fmt.Errorf("none of the ports %v on which rank 0 can share the communicator id is free: %w; set NCCL_COMM_ID=host:port", s.ports, err)
}

func (s *share) admit(h hello) error {
	if h.purpose != toShare || h.to != 0 || int(h.size) != s.w.Size || h.from <= 0 || h.from >= h.size {
		return fmt.Errorf("rank %d of %d asks rank %d; this is rank 0 of %d", h.from, h.size, h.to, s.w.Size)
	}
	return nil
}

// serve sends the ID to a caller. The gate calls it, and closes only after it has
// returned.
func (s *share) serve(h hello, c net.Conn, key []byte, id ID) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(meet.Patience))
	if _, err := c.Write(seal(key, id)); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served[h.from] {
		return
	}
	if s.served[h.from] = true; len(s.served) == s.w.Size-1 {
		close(s.done)
	}
}

const sealedBytes = 128 + 16

// sealer returns AES-GCM with a connection's key, which is used once.
func sealer(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("bootstrap: " + err.Error()) // 32 bytes are a valid key
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic("bootstrap: " + err.Error())
	}
	return gcm
}

func seal(key []byte, id ID) []byte {
	g := sealer(key)
	return g.Seal(nil, make([]byte, g.NonceSize()), id[:], nil)
}

func unseal(key, b []byte) (ID, error) {
	g := sealer(key)
	p, err := g.Open(nil, make([]byte, g.NonceSize()), b, nil)
	if err != nil || len(p) != len(ID{}) {
		return ID{}, errors.New("the received data is not a communicator id")
	}
	return ID(p), nil
}
