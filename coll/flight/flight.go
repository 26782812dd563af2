// Package flight is a flight recorder: the last calls of a process's communicators. The record is
// in memory that other processes can read (a memfd, through /proc/PID/fd), even if the process is
// stopped or waits forever in a driver. Nothing remains of it when the process ends.
package flight

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// An Entry is one operation, or one group of Sends and Recvs.
type Entry struct {
	Seq    uint32 // number of the collective; for Sends and Recvs, of the last collective before them
	P2P    uint32 // 0: a collective; else the number of this group of Sends and Recvs since then
	Sign   uint32 // signature of a collective, as coll computes it
	Peer   int32  // of Sends and Recvs; the root of a collective; -1: none, or several
	Count  int64  // elements of a collective; the number of Sends and Recvs
	Stream uint64
	At     time.Time // when it was called; Add sets it
}

// Entries is how many of a communicator's last operations are recorded.
const Entries = 512

// A Log is the record of one rank of a communicator. One goroutine at a time adds, any may read.
type Log struct {
	b    *block
	list *processLogs
}

// Add records an operation that is about to be enqueued.
func (l *Log) Add(e *Entry) {
	n := l.b.calls.Load()
	s := &l.b.ring[n%Entries]
	s.version.Store(2*n + 1)
	s.at = now()
	s.seq, s.p2p, s.sign, s.peer, s.count, s.stream = e.Seq, e.P2P, e.Sign, e.Peer, e.Count, e.Stream
	s.version.Store(2*n + 2)
	l.b.calls.Store(n + 1)
}

// Calls returns how many operations were added.
func (l *Log) Calls() uint64 { return l.b.calls.Load() }

// Last returns the operation that was added last; false if there is none.
func (l *Log) Last() (Entry, bool) { return l.b.last() }

// Collective returns the collective with a number, if it is still recorded.
func (l *Log) Collective(seq uint32) (Entry, bool) {
	for n := l.b.calls.Load(); n > 0; n-- {
		e, ok := l.b.at(n - 1)
		switch {
		case !ok || e.Seq < seq: // numbers increase, and if an entry is gone, all older ones are, too
			return Entry{}, false
		case e.Seq == seq && e.P2P == 0:
			return e, true
		}
	}
	return Entry{}, false
}

// At returns the operation that was added as the given one, from 1, if it is still recorded.
func (l *Log) At(call uint64) (Entry, bool) {
	if call == 0 || call > l.b.calls.Load() {
		return Entry{}, false
	}
	return l.b.at(call - 1)
}

// Collectives returns those that are recorded, the last one first, as far as no number between
// them is missing.
func (l *Log) Collectives() (all []Entry) {
	for n := l.b.calls.Load(); n > 0; n-- {
		e, ok := l.b.at(n - 1)
		switch {
		case !ok, len(all) > 0 && e.P2P == 0 && e.Seq+1 != all[len(all)-1].Seq:
			return all
		case e.P2P == 0:
			all = append(all, e)
		}
	}
	return all
}

// Ended records that this many of the operations so far are known to have ended.
func (l *Log) Ended(calls uint64) {
	if l.b.ended.Load() != calls {
		l.b.endedAt.Store(now())
		l.b.ended.Store(calls)
	}
}

// Say records a sentence about the communicator, replacing the one before.
func (l *Log) Say(what string) {
	l.b.said.Store(0)
	l.b.sentence.set(what)
	l.b.said.Store(now())
}

// Close ends the Log. Readers do not see it any more.
func (l *Log) Close() { l.list.close(l) }

// Others returns the last operations of the process's communicators with other names on the same
// device.
func (l *Log) Others() []Call { return l.list.otherCalls(l) }

// A Call is an operation and the name of its communicator.
type Call struct {
	Entry
	Name string // of the communicator
}

// New creates the Log of a communicator with the given name, for a rank on a device. jobs are the
// numbers of the communicator's ranks in their job, or -1 where they are unknown.
func New(name string, rank, device int, jobs []int) *Log {
	return process.open(name, rank, device, jobs)
}

// process is the list of this process.
var process processLogs

// A processLogs contains the Logs of a process.
type processLogs struct {
	mu    sync.Mutex
	areas [][]byte // of blocks; other processes see the first one
	all   []*Log
}

func (p *processLogs) open(name string, rank, device int, jobs []int) *Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &Log{b: p.free(), list: p}
	b := l.b
	*b = block{}
	b.name.set(name)
	b.rank, b.size, b.device = int32(rank), int32(len(jobs)), int32(device)
	for i, job := range jobs[:min(len(jobs), maxJobs)] {
		b.jobs[i] = int32(job)
	}
	b.used.Store(1)
	p.all = append(p.all, l)
	return l
}

// free returns a block that no Log uses.
func (p *processLogs) free() *block {
	for _, area := range p.areas {
		for at := headerBytes; at < areaBytes; at += blockBytes {
			if b := blockAt(area, at); b.used.Load() == 0 {
				return b
			}
		}
	}
	p.areas = append(p.areas, newArea(len(p.areas) == 0))
	return blockAt(p.areas[len(p.areas)-1], headerBytes)
}

func (p *processLogs) close(l *Log) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, o := range p.all {
		if o == l {
			p.all = append(p.all[:i], p.all[i+1:]...)
			l.b.used.Store(0)
			return
		}
	}
}

func (p *processLogs) otherCalls(l *Log) (calls []Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.all {
		if o.b.name == l.b.name || o.b.device != l.b.device { // other ranks of the same communicator, or operations on other devices
			continue
		}
		if e, ok := o.Last(); ok {
			calls = append(calls, Call{e, o.b.name.String()})
		}
	}
	return calls
}

// The clock is monotonic, and costs half as much as time.Now.
var (
	start   = time.Now()
	startNS = start.UnixNano()
)

func now() int64 { return startNS + int64(time.Since(start)) }

// What other processes see: a header, then blocks, one per communicator. A reader only reads what
// the same version of this package wrote, so that both agree on the layout.
const (
	headerBytes = 64
	blockBytes  = int(unsafe.Sizeof(block{}))
	blocks      = 120 // per area of 5 MB, of which only what is written takes memory
	areaBytes   = headerBytes + blocks*blockBytes
	magic       = "assayfly"
	version     = 3
	maxJobs     = 1024 // ranks whose numbers in the job are recorded
)

type header struct {
	magic   [8]byte
	version uint32
	bytes   uint32 // of a block
}

// A word is a text of limited length.
type word [128]byte
type sentence [2048]byte

func (w *word) set(s string)       { clear(w[copy(w[:len(w)-1], s):]) }
func (w *word) String() string     { return cString(w[:]) }
func (w *sentence) set(s string)   { clear(w[copy(w[:len(w)-1], s):]) }
func (w *sentence) String() string { return cString(w[:]) }

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

type block struct {
	used               atomic.Uint32
	rank, size, device int32
	name               word
	jobs               [maxJobs]int32
	calls              atomic.Uint64
	ended              atomic.Uint64 // of calls
	endedAt            atomic.Int64  // ns since 1970
	said               atomic.Int64  // ns since 1970; 0: nothing
	sentence           sentence
	ring               [Entries]slot
}

// A slot stores an entry. version is 2n+2 if it contains entry n, and odd while one is written.
type slot struct {
	version  atomic.Uint64
	at       int64 // ns since 1970
	seq, p2p uint32
	sign     uint32
	peer     int32
	count    int64
	stream   uint64
	_        [16]byte
}

func blockAt(file []byte, at int) *block { return (*block)(unsafe.Pointer(&file[at])) }

func (b *block) last() (Entry, bool) {
	n := b.calls.Load()
	if n == 0 {
		return Entry{}, false
	}
	return b.at(n - 1)
}

// at returns entry n, if it is still there.
func (b *block) at(n uint64) (Entry, bool) {
	s := &b.ring[n%Entries]
	if s.version.Load() != 2*n+2 {
		return Entry{}, false
	}
	e := Entry{Seq: s.seq, P2P: s.p2p, Sign: s.sign, Peer: s.peer, Count: s.count, Stream: s.stream, At: time.Unix(0, s.at)}
	return e, s.version.Load() == 2*n+2
}
