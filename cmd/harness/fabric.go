package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/node"
)

// A fabric is the machines of a job, a process each: node.Job.
type fabric struct {
	*meshGroup
	names []string // by rank
}

// joinFabric meets the other processes that a launcher started; nil: there are
// none.
func joinFabric(ctx context.Context, name string) (*fabric, error) {
	where, err := bootstrap.Detect(os.Getenv)
	if err != nil {
		return nil, usagef("%w", err)
	}
	if where.Size == 1 {
		return nil, nil
	}
	if where.LocalSize > 1 {
		return nil, usagef("%d processes were started on a machine, and the suite takes one: srun --ntasks-per-node=1, mpirun --map-by ppr:1:node, torchrun --nproc-per-node=1", where.LocalSize)
	}
	g, err := meetMesh(ctx)
	if err != nil {
		return nil, err
	}
	f := &fabric{meshGroup: g}
	names, err := f.AllGather(ctx, []byte(name))
	if err != nil {
		g.abort()
		return nil, fmt.Errorf("the machines of the job: %w", err)
	}
	count := map[string]int{}
	for rank, n := range names {
		name := string(n)
		if count[name]++; count[name] > 1 {
			name = fmt.Sprintf("%s (rank %d)", name, rank)
		}
		f.names = append(f.names, name)
	}
	return f, nil
}

// leave leaves in order, unless somebody was lost.
func (f *fabric) leave() {
	if f.broken() || f.close() != nil {
		f.abort()
	}
	f.lose(nil)
}

// Name is a machine's.
func (f *fabric) Name(rank int) string { return f.names[rank] }

// AllGather gives up when another process was lost, and says which.
func (f *fabric) AllGather(ctx context.Context, b []byte) ([][]byte, error) {
	together, end := f.together(ctx)
	defer end()
	all, err := f.Group.AllGather(together, b)
	return all, f.blame(err)
}

// together ends with ctx, and when another process was lost.
func (f *fabric) together(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(f.lost, func() { cancel(context.Cause(f.lost)) })
	return ctx, func() { stop(); cancel(nil) }
}

// blame names the machine that was lost, if that is why something failed.
func (f *fabric) blame(err error) error {
	var lost *lostError
	switch {
	case err == nil || !errors.As(context.Cause(f.lost), &lost):
		return err
	case lost.rank < len(f.names):
		return fmt.Errorf("%s: %w", f.names[lost.rank], lost)
	}
	return lost
}

// A start is what rank 0 says before a command runs everywhere, an end what each
// says after it.
type (
	start struct {
		Token string `json:"token"` // of this run alone
		Addr  string `json:"addr"`  // rank 0's
	}
	end struct {
		Status int    `json:"status"`
		Error  string `json:"error,omitempty"`
		Stdout []byte `json:"stdout,omitempty"` // rank 0's, compressed
	}
)

// Run runs a command on all machines as one job of its own, which finds itself as
// one that torchrun started does.
func (f *fabric) Run(ctx context.Context, args ...string) (node.Output, error) {
	mine, err := json.Marshal(start{rand.Text(), f.addr})
	if err != nil {
		return node.Output{}, err
	}
	all, err := f.AllGather(ctx, mine)
	if err != nil {
		return node.Output{}, err
	}
	var s start
	if err := json.Unmarshal(all[0], &s); err != nil {
		return node.Output{}, err
	}
	together, stop := f.together(ctx)
	defer stop()
	out, failed := runChildIn(together, f.environ(os.Environ(), s), args...)
	e := end{Status: out.Status}
	switch {
	case failed != nil:
		e.Error = failed.Error()
	case out.Status != 0:
		e.Error = lastWords(out.Stderr)
	}
	if f.Rank() == 0 && failed == nil {
		if e.Stdout, err = compressed(out.Stdout); err != nil {
			return out, err
		}
	}
	if mine, err = json.Marshal(e); err != nil {
		return out, err
	}
	// Though the time of the check is up: the machines must stay in step.
	if all, err = f.AllGather(context.WithoutCancel(ctx), mine); err != nil {
		return out, err
	}
	return f.outcome(all)
}

// outcome is rank 0's output, unless it went wrong anywhere. Statuses 0 and 1 are
// a report's.
func (f *fabric) outcome(all [][]byte) (node.Output, error) {
	var out node.Output
	for rank, b := range all {
		var e end
		if err := json.Unmarshal(b, &e); err != nil {
			return out, err
		}
		if e.Status != 0 && e.Status != 1 || e.Error != "" && e.Status == 0 {
			return out, fmt.Errorf("%s: status %d: %s", f.names[rank], e.Status, e.Error)
		}
		if rank == 0 {
			stdout, err := uncompressed(e.Stdout)
			if err != nil {
				return out, err
			}
			out.Stdout, out.Status = stdout, e.Status
		}
	}
	return out, nil
}

// environ makes a process find its rank as torchrun's do, which every launcher
// goes behind.
func (f *fabric) environ(environ []string, s start) []string {
	return append(environ,
		"TORCHELASTIC_RUN_ID="+s.Token, "TORCHELASTIC_RESTART_COUNT=0", "RANK="+strconv.Itoa(f.Rank()), "WORLD_SIZE="+strconv.Itoa(f.Size()),
		"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR="+s.Addr, "MASTER_PORT=1", "ASSAY_JOB_SECRET="+s.Token)
}

func lastWords(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "harness: ")
}

func compressed(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

func uncompressed(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, certificate.MaxSize))
}

// gather brings all machines' certificates to all. What did not come is nil, and
// the error says why.
func (f *fabric) gather(ctx context.Context, own *certificate.Statement) ([]*certificate.Statement, error) {
	out := make([]*certificate.Statement, f.Size())
	out[f.Rank()] = own
	doc, err := own.Marshal()
	if err != nil {
		return out, err
	}
	b, err := compressed(doc)
	if err != nil {
		return out, err
	}
	all, err := f.AllGather(ctx, b)
	if err != nil {
		return out, err
	}
	var wrong []error
	for rank, b := range all {
		doc, err := uncompressed(b)
		if err == nil {
			out[rank], err = certificate.Parse(doc)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: its certificate: %w", f.names[rank], err))
		}
	}
	return out, errors.Join(wrong...)
}
