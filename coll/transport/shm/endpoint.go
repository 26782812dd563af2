// Package shm moves messages between ranks of one host through shared memory.
//
// Each rank has one piece of memory, without a name in any file system. It holds the
// messages that the rank sends, in one queue for each receiver and channel (and one for
// all receivers together), and a bell to wake the rank. The memory gets its full size at
// once, but its pages are allocated on first use; peers map a queue when they first need
// it. However the processes end, nothing stays behind.
//
// The sender copies a message once, into a slot, and the receiver reduces or copies it
// from there. A long message in memory from Alloc is not copied by the sender at all
// (direct.go). While there are free slots, the processors exchange only the messages' own
// cache lines.
package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
)

// Options describe a rank's endpoint. All ranks of a communicator must have
// the same Ranks, Channels and Slot.
type Options struct {
	Rank, Ranks int
	Channels    int
	Slot        int    // bytes of payload of a slot; 0: DefaultSlot
	Host        uint64 // identifies the host
	Secret      uint64 // identifies the communicator; memory with another secret belongs to another communicator
	// Direct, if not nil, lets ranks read each other's memory in place where they can
	// (direct.go); it receives the error when that fails. Either all ranks set it, or
	// none.
	Direct *transport.Fault
}

// DefaultSlot is large enough for messages that keep the copying loops busy, and small
// enough that a connection's slots stay in a second-level cache.
const DefaultSlot = 128 << 10

// An Endpoint is a rank's shared memory. It implements transport.Endpoint.
type Endpoint struct {
	o      Options
	nonce  uint64
	file   *os.File
	head   *mapping
	region int // bytes of a connection's memory, page aligned
	multi  int // the same for the connection to all ranks

	fileMu sync.RWMutex // against closing file while another rank of the process maps it
	closed bool

	mu      sync.Mutex
	maps    []*mapping
	peers   map[int]*peer
	remotes map[remote]*mapping
	txs     []*tx
	views   []*view
	done    bool
}

// A peer is another rank's opened memory.
type peer struct {
	rank  int
	by    int       // this rank
	pid   int       // 0: it is in this process
	file  *os.File  // of another process
	local *Endpoint // in this process
	head  *mapping
}

// The first page of a rank's memory: its bell, and the communicator's secret.
const (
	bellAt   = 0
	secretAt = line
	headSize = 4096
)

// local holds the endpoints of this process by nonce, so that ranks in one process need
// not go through /proc.
var local sync.Map // uint64 -> *Endpoint

var nonces atomic.Uint64

// New creates a rank's memory.
func New(o Options) (*Endpoint, error) {
	if o.Slot == 0 {
		o.Slot = DefaultSlot
	}
	if o.Rank < 0 || o.Rank >= o.Ranks || o.Channels < 1 || o.Slot < cacheLine {
		return nil, fmt.Errorf("shm: rank %d of %d, %d channels, slots of %d bytes", o.Rank, o.Ranks, o.Channels, o.Slot)
	}
	e := &Endpoint{o: o, nonce: nonces.Add(1), peers: map[int]*peer{}, remotes: map[remote]*mapping{}}
	e.region = pageAlign(newGeometry(1, o.Slot).size())
	e.multi = pageAlign(newGeometry(max(1, o.Ranks-1), o.Slot).size())
	size := int64(headSize) + int64(o.Channels)*(int64(o.Ranks)*int64(e.region)+int64(e.multi))
	var err error
	if e.file, err = createMemory(fmt.Sprintf("assay-rank%d", o.Rank), size); err != nil {
		return nil, err
	}
	if e.head, err = mapFile(int(e.file.Fd()), 0, headSize); err != nil {
		e.file.Close()
		return nil, err
	}
	atomic.StoreUint64((*uint64)(e.head.at(secretAt)), o.Secret)
	local.Store(e.nonce, e)
	return e, nil
}

// Name implements transport.Endpoint.
func (e *Endpoint) Name() string { return "SHM" }

// Bell returns this rank's bell, on which it sleeps.
func (e *Endpoint) Bell() *Bell { return (*Bell)(e.head.at(bellAt)) }

var order = binary.LittleEndian

// An info describes a rank's memory to its peers.
type info struct {
	Host, PIDs, Nonce          uint64 // PIDs: the PID namespace in which PID is valid
	UID, PID, FD               uint32
	Ranks, Channels, SlotBytes uint32
	Direct                     bool
}

func (e *Endpoint) info() info {
	return info{
		Direct: e.o.Direct != nil,
		Host:   e.o.Host, PIDs: pidNamespace(), Nonce: e.nonce,
		UID: uint32(os.Getuid()), PID: uint32(os.Getpid()), FD: uint32(e.file.Fd()),
		Ranks: uint32(e.o.Ranks), Channels: uint32(e.o.Channels), SlotBytes: uint32(e.o.Slot),
	}
}

// Info implements transport.Endpoint.
func (e *Endpoint) Info() []byte {
	b, err := binary.Append(nil, order, e.info())
	if err != nil {
		panic("shm: " + err.Error()) // info has a fixed size
	}
	return b
}

func parseInfo(b []byte) (info, error) {
	var w info
	n, err := binary.Decode(b, order, &w)
	if err != nil || n != len(b) {
		return w, fmt.Errorf("shm: a peer's description has %d bytes, want %d", len(b), binary.Size(w))
	}
	return w, nil
}

// Errors of Reach.
var (
	errOtherHost  = errors.New("on another host")
	errOtherPIDs  = errors.New("in another PID namespace of this host")
	errOtherUser  = errors.New("of another user")
	errOtherShape = errors.New("with other settings of channels or buffer size")
)

// Reach implements transport.Endpoint.
func (e *Endpoint) Reach(_ int, b []byte) error {
	w, err := parseInfo(b)
	mine := e.info()
	switch {
	case err != nil:
		return err
	case w.Host != mine.Host:
		return errOtherHost
	case w.PIDs != mine.PIDs || mine.PIDs == 0:
		return errOtherPIDs
	case w.UID != mine.UID:
		return errOtherUser
	case w.Ranks != mine.Ranks || w.Channels != mine.Channels || w.SlotBytes != mine.SlotBytes || w.Direct != mine.Direct:
		return errOtherShape
	}
	return nil
}

// Try opens a peer's memory, to check that this is possible.
func (e *Endpoint) Try(rank int, b []byte) error {
	_, err := e.open(rank, b)
	return err
}

func (e *Endpoint) open(rank int, b []byte) (*peer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done {
		return nil, os.ErrClosed
	}
	if p := e.peers[rank]; p != nil {
		return p, nil
	}
	w, err := parseInfo(b)
	if err != nil {
		return nil, err
	}
	p := &peer{rank: rank, by: e.o.Rank}
	if other, ok := local.Load(w.Nonce); ok && int(w.PID) == os.Getpid() {
		p.local = other.(*Endpoint)
	} else {
		p.pid = int(w.PID)
		if p.file, err = openMemory(int(w.PID), int(w.FD)); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil, &transport.PeerError{Rank: rank, By: e.o.Rank, What: fmt.Sprintf("process %d has ended", w.PID)}
			}
			return nil, err
		}
	}
	if p.head, err = p.mapFile(0, headSize); err == nil && atomic.LoadUint64((*uint64)(p.head.at(secretAt))) != e.o.Secret {
		err = fmt.Errorf("shm: the memory of process %d is not that of rank %d", w.PID, rank)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	e.peers[rank] = p
	return p, nil
}

func (p *peer) close() {
	if p.head != nil {
		_ = p.head.drop()
	}
	if p.file != nil {
		p.file.Close()
	}
}

// mapFile maps a part of the peer's memory.
func (p *peer) mapFile(off int64, n int) (*mapping, error) {
	if p.local == nil {
		return mapFile(int(p.file.Fd()), off, n)
	}
	p.local.fileMu.RLock()
	defer p.local.fileMu.RUnlock()
	if p.local.closed {
		return nil, &transport.PeerError{Rank: p.rank, By: p.by, What: "it has closed its communicator"}
	}
	return mapFile(int(p.local.file.Fd()), off, n)
}

func (p *peer) bell() *Bell { return (*Bell)(p.head.at(bellAt)) }

// mapOwn maps a part of this rank's memory.
func (e *Endpoint) mapOwn(off int64, n int) (*mapping, error) {
	return mapFile(int(e.file.Fd()), off, n)
}

// mapRegion maps a connection's memory, which is part of the sending rank's memory. A
// negative to stands for the connection to all ranks.
func (e *Endpoint) mapRegion(of func(off int64, n int) (*mapping, error), channel, to int) (unsafe.Pointer, error) {
	off, n := int64(headSize)+int64(channel)*(int64(e.o.Ranks)*int64(e.region)+int64(e.multi)), e.region
	if to < 0 {
		off, n = off+int64(e.o.Ranks)*int64(e.region), e.multi
	} else {
		off += int64(to) * int64(e.region)
	}
	m, err := of(off, n)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.maps = append(e.maps, m)
	return m.at(0), nil
}

// Tx implements transport.Endpoint.
func (e *Endpoint) Tx(_ context.Context, to int, b []byte, channel int) (transport.Tx, error) {
	p, err := e.open(to, b)
	if err != nil {
		return nil, err
	}
	mem, err := e.mapRegion(e.mapOwn, channel, to)
	if err != nil {
		return nil, err
	}
	return e.newTx(mem, 1, p.bell()), nil
}

// Rx implements transport.Endpoint.
func (e *Endpoint) Rx(_ context.Context, from int, b []byte, channel int) (transport.Rx, error) {
	p, err := e.open(from, b)
	if err != nil {
		return nil, err
	}
	mem, err := e.mapRegion(p.mapFile, channel, e.o.Rank)
	if err != nil {
		return nil, err
	}
	return e.newRx(mem, 1, 0, p), nil
}

func (e *Endpoint) newTx(mem unsafe.Pointer, readers int, bells ...*Bell) *tx {
	t := &tx{mem: mem, g: newGeometry(readers, e.o.Slot), bells: bells, direct: e.o.Direct != nil}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.txs = append(e.txs, t)
	return t
}

// newRx creates the receiving end with tail i.
func (e *Endpoint) newRx(mem unsafe.Pointer, readers, i int, from *peer) *rx {
	tail := (*uint64)(unsafe.Add(mem, i*line))
	r := &rx{mem: mem, g: newGeometry(readers, e.o.Slot), tail: tail, bell: from.bell(), fault: e.o.Direct, view: view{e: e, from: from.rank, pid: from.pid}}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.views = append(e.views, &r.view)
	return r
}

// MultiTx opens a connection to all other ranks of the communicator together, all of
// which Reach admits. infos holds the Info of every rank, by rank.
func (e *Endpoint) MultiTx(_ context.Context, infos [][]byte, channel int) (transport.Tx, error) {
	var bells []*Bell
	for rank, b := range infos {
		if rank == e.o.Rank {
			continue
		}
		p, err := e.open(rank, b)
		if err != nil {
			return nil, err
		}
		bells = append(bells, p.bell())
	}
	mem, err := e.mapRegion(e.mapOwn, channel, -1)
	if err != nil {
		return nil, err
	}
	return e.newTx(mem, max(1, e.o.Ranks-1), bells...), nil
}

// MultiRx opens the receiving end of the connection that the rank from opens with
// MultiTx.
func (e *Endpoint) MultiRx(_ context.Context, from int, infos [][]byte, channel int) (transport.Rx, error) {
	p, err := e.open(from, infos[from])
	if err != nil {
		return nil, err
	}
	mem, err := e.mapRegion(p.mapFile, channel, -1)
	if err != nil {
		return nil, err
	}
	i := e.o.Rank
	if i > from {
		i-- // the sender has no tail
	}
	return e.newRx(mem, max(1, e.o.Ranks-1), i, p), nil
}

// Close implements transport.Endpoint. It does not wait for peers. No connection of
// the endpoint may be in use.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done {
		return nil
	}
	e.done = true
	local.Delete(e.nonce)
	for _, t := range e.txs {
		t.revoke()
	}
	for _, v := range e.views {
		v.leave()
	}
	var errs []error
	for _, p := range e.peers {
		p.close()
	}
	for _, m := range slices.AppendSeq(append(e.maps, e.head), maps.Values(e.remotes)) {
		errs = append(errs, m.drop())
	}
	e.fileMu.Lock()
	e.closed = true
	errs = append(errs, e.file.Close())
	e.fileMu.Unlock()
	return errors.Join(errs...)
}

// pidNamespace returns the inode of the PID namespace, or 0 if it cannot be determined.
func pidNamespace() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
}
