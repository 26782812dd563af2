// Package gather sends the results of all ranks of a job to rank 0, over a tree of TCP
// connections. It does not wait for ranks that do not answer.
//
// # How it works
//
// The tree has a fan-out k: the parent of rank r is (r-1)/k. A rank listens, dials its parent,
// collects its children's summaries, merges them with its own and sends the result up. The size
// of a [Summary] depends on the checks that were made and hardly on the number of ranks. So no
// rank holds or sends more than k+1 summaries. Full documents take the same path, one at a time,
// and only if rank 0 wants them.
//
// # Missing ranks
//
// One time limit applies to everything. A rank d levels from the root stops waiting for its
// subtree at its own time, which is later the nearer it is to the root, and names the ranks that
// are missing. A rank whose parent does not answer tries its grandparent, and so on up to rank 0.
// A rank is done when its parent has passed on what it sent; if that does not happen, it sends
// the same further up. Duplicates are counted once. So a result is lost only if a rank and its
// parent both fail.
//
// # Authentication
//
// Both ends of a connection prove that they know the token, which never crosses the wire
// (internal/meet); connections from strangers are dropped. Nothing is encrypted or signed.
package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Options of a rank. Size, Fanout, Token and Limit are the same on all ranks.
type Options struct {
	Rank, Size int
	// Fanout is the number of children of a rank; 0 is 8.
	Fanout int
	// Token is the secret that all ranks know.
	Token []byte
	// Listener accepts connections from this rank's descendants. Run closes it. A rank without
	// children does not need one.
	Listener net.Listener
	// Peers returns the address of a rank's listener, "host:port". It is called for ancestors
	// only, and at least for the parent.
	Peers func(ctx context.Context, rank int) (string, error)
	// Name returns a rank's host as far as it is known here; nil or "" means not known.
	Name func(rank int) string
	// Limit is the time limit for the whole run; 0 is 30 s.
	Limit time.Duration
	// Document is sent to rank 0 in full, in addition to the summary; nil sends nothing. Unlike a
	// summary, it is lost if a rank on its path dies.
	Document []byte
	// Keep, at rank 0, is called for each document that arrives, one at a time, possibly twice
	// for the same rank. Without it documents are dropped.
	Keep func(rank int, document []byte) error
	// Logf receives messages for the user; nil drops them.
	Logf func(format string, a ...any)
}

const (
	defaultFanout = 8
	defaultLimit  = 30 * time.Second
	// maxRanks bounds what a message can make a rank allocate.
	maxRanks = 1 << 20
	// maxDocument is the maximum size of a document, in bytes.
	maxDocument = 32 << 20
	// maxSummary is the maximum size of an encoded summary.
	maxSummary = 64 << 20
)

func (o Options) check() (Options, error) {
	o.Fanout = cmp.Or(o.Fanout, defaultFanout)
	o.Limit = cmp.Or(o.Limit, defaultLimit)
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	switch {
	case o.Size < 1 || o.Size > maxRanks:
		return o, fmt.Errorf("gathering from %d ranks; 1 to %d are possible", o.Size, maxRanks)
	case o.Rank < 0 || o.Rank >= o.Size:
		return o, fmt.Errorf("rank %d of %d is out of range", o.Rank, o.Size)
	case o.Fanout < 1 || o.Limit < 0:
		return o, fmt.Errorf("a fan-out of %d within %v; both must be above 0", o.Fanout, o.Limit)
	case len(o.Token) == 0:
		return o, errors.New("gathering without a token: any process could send results")
	case o.Rank > 0 && o.Peers == nil:
		return o, errors.New("a rank other than 0 needs to know where the others are: Peers is not set")
	case o.Listener == nil && len(children(o.Rank, o.Size, o.Fanout)) > 0:
		return o, fmt.Errorf("rank %d has children and no listener", o.Rank)
	case len(o.Document) > maxDocument:
		return o, fmt.Errorf("a document of %d bytes; at most %d are possible", len(o.Document), maxDocument)
	}
	return o, nil
}

// parent is the rank above r.
func parent(r, fanout int) int { return (r - 1) / fanout }

// children are the ranks below r.
func children(r, size, fanout int) (out []int) {
	for c := fanout*r + 1; c <= fanout*r+fanout && c < size; c++ {
		out = append(out, c)
	}
	return out
}

// level is the distance of r from rank 0.
func level(r, fanout int) (n int) {
	for ; r > 0; r = parent(r, fanout) {
		n++
	}
	return n
}

// under reports whether r is in the tree below top.
func under(r, top, fanout int) bool {
	for r > top {
		r = parent(r, fanout)
	}
	return r == top
}

// subtree returns all ranks below r, in order.
func subtree(r, size, fanout int) (out []int) {
	for first, last := children(r, size, fanout), 0; len(first) > 0; {
		out = append(out, first...)
		last = first[len(first)-1]
		lo, hi := fanout*first[0]+1, min(fanout*last+fanout, size-1)
		first = nil
		for c := lo; c <= hi; c++ {
			first = append(first, c)
		}
	}
	return out
}

// slice returns how much longer a rank's parent waits than the rank itself.
func (o *Options) slice() time.Duration {
	return o.Limit / time.Duration(level(o.Size-1, o.Fanout)+1)
}

// waits returns how long a rank waits for its subtree, from the beginning.
func (o *Options) waits(rank int) time.Duration {
	return o.Limit - time.Duration(level(rank, o.Fanout))*o.slice()
}

// rankName names a rank for messages.
func (o *Options) rankName(rank int) string {
	if o.Name != nil {
		if host := o.Name(rank); host != "" {
			return fmt.Sprintf("rank %d on %s", rank, host)
		}
	}
	return fmt.Sprintf("rank %d", rank)
}

// A Missing is a rank without a result.
type Missing struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host,omitempty"`
	Reason string `json:"reason"`
}

func (m Missing) String() string {
	if m.Host != "" {
		return fmt.Sprintf("rank %d on %s: %s", m.Rank, m.Host, m.Reason)
	}
	return fmt.Sprintf("rank %d: %s", m.Rank, m.Reason)
}

// stats are the costs of one rank's part.
type stats struct {
	Messages int   // sent and received, without handshakes
	Bytes    int64 // in these messages
	Level    int   // from rank 0
}

// Run gathers. At rank 0 it returns the summary of all ranks. At other ranks it returns nil once
// the rank above has passed on theirs. Missing ranks are not an error: the summary lists them.
func Run(ctx context.Context, own *Summary, o Options) (*Summary, stats, error) {
	o, err := o.check()
	if err != nil {
		return nil, stats{}, fmt.Errorf("gather: %w", err)
	}
	if own == nil {
		return nil, stats{}, fmt.Errorf("gather: rank %d has no summary", o.Rank)
	}
	if err := own.validate(); err != nil {
		return nil, stats{}, fmt.Errorf("gather: rank %d's own summary: %w", o.Rank, err)
	}
	g := newGathering(o, own)
	out, err := g.run(ctx)
	st := stats{Messages: int(g.messages.Load()), Bytes: g.bytes.Load(), Level: level(o.Rank, o.Fanout)}
	if err != nil {
		return nil, st, fmt.Errorf("gather: %s: %w", o.rankName(o.Rank), err)
	}
	return out, st, nil
}
