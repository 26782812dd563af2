package gather

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// A gathering is the state of one rank's part.
type gathering struct {
	o       Options
	own     *Summary
	begun   time.Time
	subtree []int
	gate    meet.Gate
	wg      sync.WaitGroup // of the goroutine that connects to the parent

	messages atomic.Int64
	bytes    atomic.Int64

	passed chan struct{} // closed when the rank above has this rank's result
	once   sync.Once     // for passed
	lost   chan struct{} // closed when no rank above took it

	keep sync.Mutex // held while Keep runs

	mu     sync.Mutex
	conns  map[net.Conn]bool // true: the peer has sent its part, and waits for the answer
	up     net.Conn          // connection to an ancestor, once there is one
	upOpen chan struct{}     // closed when the first attempt to connect is over
	upLock sync.Mutex        // held while writing to it
	parts  []*packedSummary
	count  int           // ranks of the subtree that parts cover
	full   chan struct{} // closed when count is the whole subtree
	closed bool          // no more parts are accepted
	seen   map[int]Missing
}

func newGathering(o Options, own *Summary) *gathering {
	g := &gathering{
		o: o, own: own, begun: time.Now(), subtree: subtree(o.Rank, o.Size, o.Fanout),
		passed: make(chan struct{}), lost: make(chan struct{}), full: make(chan struct{}),
		upOpen: make(chan struct{}), conns: map[net.Conn]bool{}, seen: map[int]Missing{},
	}
	if len(g.subtree) == 0 {
		close(g.full)
	}
	g.gate = meet.Gate{
		Protocol: protocol, Secret: o.Token, Name: fmt.Sprintf("gather: rank %d", o.Rank), Logf: o.Logf, Patience: o.slice() / 2,
		Admit: g.admit, Enter: func(c net.Conn, claim, _ []byte) { g.serve(c, claim) },
	}
	return g
}

func (g *gathering) at(after time.Duration) time.Time { return g.begun.Add(after) }

func (g *gathering) run(ctx context.Context) (*Summary, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, g.at(g.o.Limit+g.o.slice()/2), fmt.Errorf("no machine above took its result within %v", g.o.Limit))
	defer g.wg.Wait()
	defer g.shut()
	defer cancel()
	if g.o.Listener != nil {
		g.gate.Serve(g.o.Listener)
	}
	way := &climb{g: g, next: g.o.Rank}
	if g.o.Rank > 0 {
		g.wg.Go(func() { way.first(ctx) })
	}
	wait := time.NewTimer(time.Until(g.at(g.o.waits(g.o.Rank))))
	defer wait.Stop()
	select {
	case <-g.full:
	case <-wait.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p := g.close()
	if g.o.Rank == 0 {
		close(g.passed)
		if g.o.Document != nil && g.o.Keep != nil {
			g.keepDocument(0, g.o.Document)
		}
		return p.Summary, nil
	}
	err := way.send(ctx, p)
	if err != nil {
		close(g.lost)
	}
	return nil, err
}

// close merges the parts that have arrived into one, and accepts no more.
func (g *gathering) close() *packedSummary {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	defer func() {
		// The ranks that parts cover are still needed; their results are in the merged part.
		for _, p := range g.parts {
			p.pack(nil)
		}
		g.own = nil
	}()
	return merge(g.o.Rank, g.own, g.parts, g.subtree, func(r int) Missing {
		m, ok := g.seen[r]
		if !ok {
			m.Reason = fmt.Sprintf("no answer within %v", g.o.Limit)
		}
		m.Rank = r
		if m.Host == "" && g.o.Name != nil {
			m.Host = g.o.Name(r)
		}
		return m
	})
}

// shut closes all connections except those of peers that are about to hear that their part has
// been passed on.
func (g *gathering) shut() {
	g.mu.Lock()
	g.closed = true
	for c, answering := range g.conns {
		if !answering {
			c.Close()
		}
	}
	g.conns = nil
	g.mu.Unlock()
	g.gate.Close()
}

// hold registers a connection until forget. It returns false if it is too late.
func (g *gathering) hold(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns == nil {
		c.Close()
		return false
	}
	g.conns[c] = false
	return true
}

func (g *gathering) forget(c net.Conn) {
	c.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}

func (g *gathering) admit(claim []byte) error {
	from, err := caller(claim, g.o.Rank, g.o.Size)
	if err == nil && (from == g.o.Rank || !under(from, g.o.Rank, g.o.Fanout)) {
		err = fmt.Errorf("it is rank %d, which is not under this one", from)
	}
	return err
}

// serve reads the messages of one descendant.
func (g *gathering) serve(c net.Conn, claim []byte) {
	if !g.hold(c) {
		return
	}
	defer g.forget(c)
	from, _ := caller(claim, g.o.Rank, g.o.Size)
	host := ""
	note := func(format string, a ...any) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.seen[from] = Missing{Rank: from, Host: host, Reason: fmt.Sprintf(format, a...)}
	}
	note("it connected, and did not finish within %v", g.o.Limit)
	c.SetDeadline(g.at(g.o.Limit + g.o.slice()))
	r := bufio.NewReaderSize(c, 512) // small, since it reads headers of frames and there may be many connections
	for {
		k, p, err := meet.ReadFrame(r, maxSummary)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				note("it broke off before its result was here: %v", meet.Brief(err))
			}
			return
		}
		g.messages.Add(1)
		g.bytes.Add(int64(len(p)))
		switch k {
		case frameHost:
			host = string(p[:min(len(p), 255)])
			note("it connected, and did not finish within %v", g.o.Limit)
		case frameDocument:
			if err := g.document(p); err != nil {
				note("its document: %v", err)
				return
			}
		case frameSummary:
			part, err := decodePart(p, from, g.o.Size, g.o.Fanout)
			if err != nil {
				note("it sent nonsense: %v", err)
				return
			}
			part.pack(p)
			g.mu.Lock()
			if g.conns != nil {
				g.conns[c] = true
			}
			g.mu.Unlock()
			g.answer(c, part)
			return
		default:
			note("it sent nonsense: a message of kind %d", k)
			return
		}
	}
}

// answer takes a part and confirms it twice: when this rank has it, and when the rank above has
// it.
func (g *gathering) answer(c net.Conn, p *packedSummary) {
	if err := g.take(p); err != nil {
		g.write(c, frameRefused, []byte(err.Error()))
		return
	}
	if g.write(c, frameTaken, nil) != nil {
		return
	}
	select {
	case <-g.passed:
		g.write(c, framePassed, nil)
	case <-g.lost:
	case <-time.After(time.Until(g.at(g.o.Limit + g.o.slice()))):
	}
}

func (g *gathering) write(c net.Conn, k meet.Kind, p []byte) error {
	g.messages.Add(1)
	g.bytes.Add(int64(len(p)))
	return meet.WriteFrame(c, k, p)
}

// take adds a part if none of its ranks is covered yet. A part that includes parts which arrived
// separately replaces them.
func (g *gathering) take(p *packedSummary) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine := p.ranks()
	has := func(list []int, r int) bool { _, ok := slices.BinarySearch(list, r); return ok }
	var rest []*packedSummary
	replaced, known := 0, 0
	for _, q := range g.parts {
		theirs := q.ranks()
		common := 0
		for _, r := range theirs {
			if has(mine, r) {
				common++
			}
		}
		known += common
		switch {
		case common == 0:
			rest = append(rest, q)
		case common == len(theirs):
			replaced += common
		default:
			rest = append(rest, q)
		}
	}
	switch {
	case known == len(mine):
		return nil // all of it is here
	case g.closed:
		return fmt.Errorf("rank %d has sent its result already", g.o.Rank)
	case known > replaced:
		return fmt.Errorf("rank %d has a part of it already, with others", g.o.Rank)
	}
	g.parts = append(rest, p)
	if g.count += len(mine) - replaced; g.count == len(g.subtree) {
		close(g.full)
	}
	return nil
}

// document passes a document up, or hands it to Keep at rank 0.
func (g *gathering) document(p []byte) error {
	if len(p) < 4 || len(p)-4 > maxDocument {
		return fmt.Errorf("it has %d bytes", len(p)-4)
	}
	if g.o.Rank == 0 {
		if g.o.Keep != nil {
			g.keepDocument(int(binary.BigEndian.Uint32(p)), p[4:])
		}
		return nil
	}
	select {
	case <-g.upOpen:
	case <-time.After(time.Until(g.at(g.o.waits(g.o.Rank)))):
		return errors.New("there was no way up for it")
	}
	g.upLock.Lock()
	defer g.upLock.Unlock()
	if g.up == nil {
		return errors.New("no rank above answers")
	}
	return g.write(g.up, frameDocument, p)
}

func (g *gathering) keepDocument(rank int, b []byte) {
	g.keep.Lock()
	defer g.keep.Unlock()
	if err := g.o.Keep(rank, b); err != nil {
		g.o.Logf("gather: the document of %s is not kept: %v", g.o.rankName(rank), err)
	}
}

// A climb tries one ancestor after another until one takes this rank's result.
type climb struct {
	g    *gathering
	next int // the rank that was tried last
	conn net.Conn
}

// first connects to an ancestor while the subtree is still being collected, so that the rank
// above knows of this one, and documents can be sent.
func (w *climb) first(ctx context.Context) {
	g := w.g
	for at := parent(w.next, g.o.Fanout); ctx.Err() == nil; at = parent(at, g.o.Fanout) {
		w.next = at
		c, err := g.dial(ctx, at)
		if err == nil {
			w.connected(c)
			break
		}
		g.o.Logf("gather: %s: %s does not answer: %v", g.o.rankName(g.o.Rank), g.o.rankName(at), meet.Brief(err))
		if at == 0 {
			break
		}
	}
	close(g.upOpen)
}

// send sends a part to the first ancestor that takes it and passes it on.
func (w *climb) send(ctx context.Context, p *packedSummary) error {
	g := w.g
	b := p.encode()
	p.Summary = nil // it is in b
	select {
	case <-g.upOpen:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	last := errors.New("rank 0 does not answer")
	for {
		if w.conn != nil {
			if last = w.deliver(ctx, b); last == nil {
				return nil
			}
			g.forget(w.conn)
			w.connected(nil)
			g.o.Logf("gather: %s: %s did not take the result: %v", g.o.rankName(g.o.Rank), g.o.rankName(w.next), meet.Brief(last))
		}
		if w.next == 0 || ctx.Err() != nil {
			return fmt.Errorf("no rank above took its result; the last error, of %s: %w", g.o.rankName(w.next), last)
		}
		w.next = parent(w.next, g.o.Fanout)
		c, err := g.dial(ctx, w.next)
		if err != nil {
			last = err
			continue
		}
		w.connected(c)
	}
}

// connected records the connection to an ancestor, which documents use, too; nil: it is lost.
func (w *climb) connected(c net.Conn) {
	w.g.upLock.Lock()
	defer w.g.upLock.Unlock()
	w.conn, w.g.up = c, c
}

// deliver returns nil when the ancestor has passed a part on.
func (w *climb) deliver(ctx context.Context, b []byte) error {
	g := w.g
	c := w.conn // closed when this fails; AfterFunc's function may run later, with another w.conn
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	c.SetDeadline(g.at(g.o.Limit + g.o.slice()/2))
	if w.next > 0 {
		// The rank above sends at this time at the latest.
		c.SetDeadline(g.at(g.o.waits(w.next) + g.o.slice()/2))
	}
	g.upLock.Lock()
	if g.o.Document != nil {
		d := binary.BigEndian.AppendUint32(nil, uint32(g.o.Rank))
		if err := g.write(c, frameDocument, append(d, g.o.Document...)); err != nil {
			g.upLock.Unlock()
			return err
		}
	}
	err := g.write(c, frameSummary, b)
	g.upLock.Unlock()
	if err != nil {
		return err
	}
	taken := false
	for {
		k, p, err := meet.ReadFrame(c, 4096)
		switch {
		case err != nil:
			return err
		case k == frameRefused:
			return errors.New(string(p))
		case k == frameTaken && !taken:
			taken = true
			g.once.Do(func() { close(g.passed) }) // for the ranks below
		case k == framePassed && taken:
			return nil
		default:
			return fmt.Errorf("it sent a message of kind %d", k)
		}
	}
}

// dial connects to an ancestor. It retries, since the ancestor may not have started yet, until
// shortly before the ancestor stops waiting. Rank 0 is the last resort, and has no such limit.
func (g *gathering) dial(ctx context.Context, rank int) (net.Conn, error) {
	if rank > 0 {
		until := g.at(g.o.waits(rank) - g.o.slice()/2)
		if soon := time.Now().Add(g.o.slice() / 3); until.Before(soon) {
			until = soon
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	addr, err := g.o.Peers(ctx, rank)
	if err != nil {
		return nil, err
	}
	call := meet.Caller{Protocol: protocol, Secret: g.o.Token, Claim: claim(g.o.Rank, rank, g.o.Size), Patience: g.o.slice() / 3, Late: true}
	c, _, err := call.Call(ctx, []string{addr})
	if err != nil {
		return nil, err
	}
	if !g.hold(c) {
		return nil, net.ErrClosed
	}
	c.SetDeadline(g.at(g.o.Limit + g.o.slice()/2))
	host := ""
	if g.o.Name != nil {
		host = g.o.Name(g.o.Rank)
	}
	if host == "" {
		host, _ = os.Hostname()
	}
	if err := g.write(c, frameHost, []byte(host)); err != nil {
		g.forget(c)
		return nil, err
	}
	return c, nil
}
