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
	"os"
	"path/filepath"

	"github.com/assay-hpc/assay/harness/gather"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/outfile"
)

// Gathered is what the first machine received from all machines.
type Gathered struct {
	// Certificates are indexed by rank; nil: the certificate did not arrive.
	Certificates []*certificate.Statement
	// Missing is the reason, by rank.
	Missing map[int]string
	// First is the rank of the first machine.
	First int
	// Summary covers all machines that reported, including those without a certificate here.
	Summary *gather.Summary
}

// mostDocuments is the largest number of machines for which the certificates are sent with the
// summary: all of them pass through rank 0's few connections.
const mostDocuments = 1024

// A seat is a machine's position in the tree that gathers the certificates.
type seat struct {
	Rank  int            `json:"rank"`
	Size  int            `json:"size"`
	Above map[int]string `json:"above,omitempty"` // addresses of the machines above it
}

// Gather sends the results of each machine's own checks to the first machine. All machines call it,
// within Together. On the others it returns nil once the first machine has their data.
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
	var took []int // rank of each participant, by its rank in the tree
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
	g := &Gathered{Certificates: make([]*certificate.Statement, f.Size()), Missing: f.Lost(), First: f.Rank()}
	o := gather.Options{
		Rank: at.Rank, Size: at.Size, Fanout: fanout, Token: f.group.Key("gather"), Listener: l,
		Peers: func(_ context.Context, rank int) (string, error) {
			a, ok := at.Above[rank]
			if !ok {
				return "", fmt.Errorf("rank %d is not above", rank)
			}
			// Each machine has its own address for the first one.
			if _, port, err := net.SplitHostPort(a); rank == 0 && err == nil {
				a = net.JoinHostPort(f.group.First().String(), port)
			}
			return a, nil
		},
	}
	if f.First() {
		o.Name = func(rank int) string { return f.Name(took[rank]) }
		o.Keep = func(rank int, doc []byte) error {
			if err := g.keep(took[rank], doc); err != nil {
				g.Missing[took[rank]] = "its certificate: " + err.Error()
			}
			return nil
		}
		g.Certificates[f.Rank()] = own
	} else if at.Size <= mostDocuments {
		if o.Document, err = packed(own); err != nil {
			return nil, err
		}
	}
	ctx, stop := f.untilLost(ctx)
	defer stop()
	g.Summary, _, err = gather.Run(ctx, gather.Summarize(at.Rank, own), o)
	if err != nil || !f.First() {
		return nil, err
	}
	for _, m := range g.Summary.Missing {
		g.Missing[took[m.Rank]] = m.Reason
	}
	return g, nil
}

// fanout is the same as gather's default.
const fanout = 8

// seats returns the seats of the remaining machines, in rank order.
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

// WriteCertificates writes each machine's certificate, by rank, to a file of its name.
func (f *Fabric) WriteCertificates(dir string, all []*certificate.Statement) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for rank, st := range all {
		if st == nil {
			continue
		}
		b, err := st.Marshal()
		if err != nil {
			return err
		}
		if err := outfile.Write(filepath.Join(dir, fileName(f.Name(rank))+".json"), b); err != nil {
			return err
		}
	}
	return nil
}
