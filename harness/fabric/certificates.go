package fabric

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/gather"
)

// Gathered is what came of all machines, at the first one.
type Gathered struct {
	// Certificates are by rank; nil: none came.
	Certificates []*certificate.Statement
	// Missing says why, by rank.
	Missing map[int]string
	// Summary is of all that came, also of machines whose certificates did not.
	Summary *gather.Summary
}

// mostDocuments is up to how many machines their certificates come with the summary:
// all of them go through rank 0's few connections.
const mostDocuments = 1024

// A seat is a machine's in the tree in which certificates are gathered.
type seat struct {
	Rank  int            `json:"rank"`
	Size  int            `json:"size"`
	Above map[int]string `json:"above,omitempty"` // addresses of the machines above it
}

// Gather brings what each machine found out on its own to the first one: all call
// it. The others have nil when theirs has come there.
func (f *Fabric) Gather(ctx context.Context, own *certificate.Statement) (*Gathered, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(f.group.Addr().String(), "0"))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	var took []int // part, by rank of the tree
	b, err := f.exchange([]byte(net.JoinHostPort(addr(f.group.Addr()), port)), func(all [][]byte) ([][]byte, error) {
		took = f.left()
		return seats(took, all)
	})
	if err != nil {
		return nil, err
	}
	var at seat
	if err := json.Unmarshal(b, &at); err != nil {
		return nil, err
	}
	g := &Gathered{Certificates: make([]*certificate.Statement, f.Size()), Missing: f.Lost()}
	o := gather.Options{
		Rank: at.Rank, Size: at.Size, Fanout: fanout, Token: f.group.Key("gather"), Listener: l,
		Peers: func(_ context.Context, rank int) (string, error) {
			a, ok := at.Above[rank]
			if !ok {
				return "", fmt.Errorf("rank %d is not above", rank)
			}
			// Each reaches the first machine in its own way.
			if _, port, err := net.SplitHostPort(a); rank == 0 && err == nil {
				a = net.JoinHostPort(f.group.First().String(), port)
			}
			return a, nil
		},
	}
	if f.Rank() == 0 {
		o.Name = func(rank int) string { return f.Name(took[rank]) }
		o.Keep = func(rank int, doc []byte) error {
			if err := g.keep(took[rank], doc); err != nil {
				g.Missing[took[rank]] = "its certificate: " + err.Error()
			}
			return nil
		}
		g.Certificates[0] = own
	} else if at.Size <= mostDocuments {
		if o.Document, err = packed(own); err != nil {
			return nil, err
		}
	}
	g.Summary, _, err = gather.Run(ctx, gather.Summarize(at.Rank, own), o)
	if err != nil || f.Rank() != 0 {
		return nil, err
	}
	for _, m := range g.Summary.Missing {
		g.Missing[took[m.Rank]] = m.Reason
	}
	return g, nil
}

// fanout is gather's own.
const fanout = 8

// seats are those of the machines that are left, in the order of their ranks.
func seats(took []int, addrs [][]byte) ([][]byte, error) {
	answers := make([][]byte, len(addrs))
	for i, rank := range took {
		s := seat{Rank: i, Size: len(took), Above: map[int]string{}}
		for up := i; up > 0; {
			up = (up - 1) / fanout
			s.Above[up] = string(addrs[took[up]])
		}
		var err error
		if answers[rank], err = json.Marshal(s); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (g *Gathered) keep(rank int, doc []byte) error {
	r, err := gzip.NewReader(bytes.NewReader(doc))
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(r, certificate.MaxSize))
	if err != nil {
		return err
	}
	st, err := certificate.Parse(b)
	if err != nil {
		return err
	}
	g.Certificates[rank] = st
	return nil
}

func packed(st *certificate.Statement) ([]byte, error) {
	doc, err := st.Marshal()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err = w.Write(doc)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}
