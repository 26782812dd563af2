package coll

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/op"
)

// together runs f as each rank and returns the errors. A rank whose f returns
// nil destroys its communicator: what is wrong may come out only then.
func together(t *testing.T, n int, f func(c *Comm) error) []error {
	t.Helper()
	cfg := testConfig()
	cfg.Knobs.Timeout = 5 * time.Second
	comms, err := CommInitAll(context.Background(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() {
			if errs[i] = f(c); errs[i] == nil {
				errs[i] = c.Destroy()
			} else {
				_ = c.Abort()
			}
		})
	}
	done := make(chan bool)
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal("ranks hang")
	}
	return errs
}

func TestRanksThatDisagree(t *testing.T) {
	const count = 1000
	a, b := make([][]float32, 3), make([][]float32, 3)
	for i := range a {
		a[i], b[i] = make([]float32, 4*count), make([]float32, 4*count)
	}
	odd := 1 // the rank that does something else
	tests := []struct {
		name string
		f    func(c *Comm, odd bool) error
		want []string // in some rank's error
	}{
		{"count", func(c *Comm, odd bool) error {
			n := count
			if odd {
				n = count - 8
			}
			return c.AllReduce(Of(a[c.Rank()]), Of(b[c.Rank()]), n, Float32, Sum)
		}, []string{"another count or root", "AllReduce of float with sum"}},
		{"type", func(c *Comm, odd bool) error {
			ty := Float32
			if odd {
				ty = Int32
			}
			return c.AllReduce(Of(a[c.Rank()]), Of(b[c.Rank()]), count, ty, Sum)
		}, []string{"AllReduce of int32 with sum", "AllReduce of float with sum"}},
		{"op", func(c *Comm, odd bool) error {
			op := Sum
			if odd {
				op = Max
			}
			return c.AllReduce(Of(a[c.Rank()]), Of(b[c.Rank()]), count, Float32, op)
		}, []string{"with max", "with sum"}},
		{"collective", func(c *Comm, odd bool) error {
			if odd {
				return c.AllGather(Of(a[c.Rank()]), Of(b[c.Rank()]), count, Float32)
			}
			return c.AllReduce(Of(a[c.Rank()]), Of(b[c.Rank()]), count, Float32, Sum)
		}, []string{"AllGather of float", "AllReduce of float"}},
		{"order", func(c *Comm, odd bool) error {
			if odd {
				if err := c.AllGather(Of(a[c.Rank()]), Of(b[c.Rank()]), count, Float32); err != nil {
					return err
				}
			}
			if err := c.AllReduce(Of(a[c.Rank()]), Of(b[c.Rank()]), count, Float32, Sum); err != nil {
				return err
			}
			return c.AllGather(Of(a[c.Rank()]), Of(b[c.Rank()]), count, Float32)
		}, []string{"AllGather of float", "AllReduce of float"}},
		{"root", func(c *Comm, odd bool) error {
			root := 0
			if odd {
				root = 1
			}
			if err := c.Broadcast(Of(a[c.Rank()]), Of(b[c.Rank()]), count, Float32, root); err != nil {
				return err
			}
			return c.Barrier()
		}, nil},
		{"reduce root", func(c *Comm, odd bool) error {
			root := 0
			if odd {
				root = 1
			}
			if err := c.Reduce(Of(a[c.Rank()]), Of(b[c.Rank()]), count, Float32, Sum, root); err != nil {
				return err
			}
			return c.Barrier()
		}, nil},
		{"send count", func(c *Comm, odd bool) error {
			switch c.Rank() {
			case 0:
				return c.Send(Of(a[0]), count, Float32, 1)
			case 1:
				return c.Recv(Of(b[1]), count+8, Float32, 0)
			}
			return nil
		}, []string{"Send/Recv of float"}},
		{"an operation too few", func(c *Comm, odd bool) error {
			if odd {
				return nil
			}
			return c.Broadcast(Of(a[c.Rank()]), Of(b[c.Rank()]), count, Float32, 0)
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			errs := together(t, 3, func(c *Comm) error { return test.f(c, c.Rank() == odd) })
			var all []string
			usage := false
			for _, err := range errs {
				if err != nil {
					all = append(all, err.Error())
					usage = usage || CodeOf(err) == InvalidUsage
				}
			}
			text := strings.Join(all, "\n")
			t.Log(text)
			if !usage {
				t.Errorf("no rank reports invalid usage:\n%s", text)
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("no error says %q:\n%s", want, text)
				}
			}
		})
	}
}

func TestBadArguments(t *testing.T) {
	withRanks(t, 2, testConfig(), func(c *Comm) error {
		b := make([]float32, 16)
		buf := Of(b)
		for name, err := range map[string]error{
			"the receive buffer has 60 bytes":               c.AllReduce(buf, Of(b[:15]), 16, Float32, Sum),
			"the send buffer has 64 bytes":                  c.ReduceScatter(buf, Of(make([]float32, 16)), 9, Float32, Sum),
			"there is no type 99":                           c.AllReduce(buf, buf, 1, 99, Sum),
			"there is no reduction 9":                       c.AllReduce(buf, buf, 1, Float32, 9),
			"count -1 is negative":                          c.AllReduce(buf, buf, -1, Float32, Sum),
			"root 2: the communicator has 2 ranks, from 0":  c.Broadcast(buf, buf, 1, Float32, 2),
			"root -1: the communicator has 2 ranks, from 0": c.Reduce(buf, buf, 1, Float32, Sum, -1),
			"rank 7: the communicator has 2 ranks, from 0":  c.Send(buf, 1, Float32, 7),
			"overlap in another way than in p":              c.AllReduce(Of(b[:8]), Of(b[4:12]), 8, Float32, Sum),
			"more than an address can tell":                 c.AllReduce(buf, buf, 1<<60, Float32, Sum),
		} {
			if CodeOf(err) != InvalidArgument || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v; want an invalid argument, %q", err, name)
			}
		}
		if err := c.AllReduce(Buffer{}, Buffer{}, 0, Float32, Sum); err != nil {
			t.Errorf("count 0: %v", err)
		}
		// None of it has done harm.
		return c.AllReduce(buf, buf, 16, Float32, Sum)
	})
}

func TestSecondGoroutine(t *testing.T) {
	errs := together(t, 2, func(c *Comm) error {
		b := make([]float32, 1)
		if c.Rank() == 1 {
			time.Sleep(200 * time.Millisecond)
			return c.AllReduce(Of(b), Of(b), 1, Float32, Sum)
		}
		go func() {
			time.Sleep(50 * time.Millisecond)
			other := make([]float32, 1)
			if err := c.AllReduce(Of(other), Of(other), 1, Float32, Sum); !errors.Is(err, ErrBusy) {
				t.Errorf("a second goroutine got %v; want ErrBusy", err)
			}
		}()
		return c.AllReduce(Of(b), Of(b), 1, Float32, Sum)
	})
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestAbort(t *testing.T) {
	started := time.Now()
	errs := together(t, 3, func(c *Comm) error {
		b := make([]float32, 1)
		if c.Rank() == 0 { // does not come
			time.Sleep(50 * time.Millisecond)
			if err := c.Abort(); err != nil {
				t.Error(err)
			}
			return c.AllReduce(Of(b), Of(b), 1, Float32, Sum)
		}
		return c.AllReduce(Of(b), Of(b), 1, Float32, Sum)
	})
	for r, err := range errs {
		if !errors.Is(err, ErrAborted) {
			t.Errorf("rank %d: %v; want ErrAborted", r, err)
		}
	}
	t.Logf("all ranks came back after %v", time.Since(started))
}

func TestDestroyed(t *testing.T) {
	comms, err := CommInitAll(context.Background(), 2, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	destroyAll(t, comms)
	b := make([]float32, 1)
	if err := comms[0].AllReduce(Of(b), Of(b), 1, Float32, Sum); !errors.Is(err, ErrDestroyed) {
		t.Errorf("after Destroy: %v; want ErrDestroyed", err)
	}
	if err := comms[0].Destroy(); CodeOf(err) != InvalidArgument {
		t.Errorf("a second Destroy: %v; want an invalid argument", err)
	}
}

func TestTimeout(t *testing.T) {
	cfg := testConfig()
	cfg.Knobs.Timeout = 300 * time.Millisecond
	comms, err := CommInitAll(context.Background(), 2, cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]float32, 1)
	err = comms[0].AllReduce(Of(b), Of(b), 1, Float32, Sum)
	var e *Error
	if !errors.As(err, &e) || e.Code != Timeout || e.Peer != 1 {
		t.Errorf("got %v; want a timeout that names rank 1", err)
	}
	for deadline := time.Now().Add(5 * time.Minute); comms[1].AsyncError() == nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if err := comms[1].AsyncError(); CodeOf(err) != RemoteError {
		t.Errorf("rank 1's asynchronous error is %v; want a remote error", err)
	}
	for _, c := range comms {
		_ = c.Abort()
	}
}

// TestNormArguments: what is wrong with an AllReduceNorm is said before anything is enqueued.
func TestNormArguments(t *testing.T) {
	comms, err := CommInitAll(context.Background(), 1, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	c := comms[0]
	defer c.Destroy()
	const rows, row, size = 4, 8, 2
	at := func(address uintptr, n int) Buffer { return Device(address, n*size) }
	send, residual, weight := at(0x1000, rows*row), at(0x2000, rows*row), at(0x3000, row)
	good := Norm{Residual: residual, Weight: weight, Row: row, Eps: 1e-5}
	with := func(change func(n *Norm)) Norm {
		n := good
		change(&n)
		return n
	}
	tests := []struct {
		name       string
		send, recv Buffer
		count      int
		t          Type
		n          Norm
		code       Code
		want       string
	}{
		{"a type", send, send, rows * row, Int32, good, InvalidArgument, "the type is int32; it must be half, bfloat16 or float"},
		{"no row", send, send, rows * row, BFloat16, with(func(n *Norm) { n.Row = 0 }), InvalidArgument, "a row of 0 elements"},
		{"a long row", send, send, rows * row, BFloat16, with(func(n *Norm) { n.Row = 1 << 24 }), InvalidArgument, "it must have 1 to 8388608"},
		{"half a row", send, send, rows*row - 4, BFloat16, good, InvalidArgument, "28 elements are not whole rows of 8"},
		{"eps", send, send, rows * row, BFloat16, with(func(n *Norm) { n.Eps = -1 }), InvalidArgument, "eps is -1"},
		{"a short send buffer", at(0x1000, 9), send, rows * row, BFloat16, good, InvalidArgument, "the send buffer has 18 bytes, 32 bfloat16 need 64"},
		{"a short residual", send, send, rows * row, BFloat16, with(func(n *Norm) { n.Residual = weight }), InvalidArgument, "the residual has 16 bytes"},
		{"a short weight", send, send, rows * row, BFloat16, with(func(n *Norm) { n.Weight = at(0x3000, 7) }), InvalidArgument, "the weight has 14 bytes, 8 bfloat16 need 16"},
		{"host memory", send, send, rows * row, BFloat16, with(func(n *Norm) { n.Residual = Bytes(make([]byte, rows*row*size)) }), InvalidUsage, "the residual is not device memory"},
		{"an odd address", send, send, rows * row, BFloat16, with(func(n *Norm) { n.Weight = at(0x3001, row) }), InvalidArgument, "the weight: the address of a bfloat16 is a multiple of 2"},
		{"shared memory", send, residual, rows * row, BFloat16, good, InvalidArgument, "only send and recv may"},
		{"shared weight", send, send, rows * row, BFloat16, with(func(n *Norm) { n.Weight = at(0x2000+8, row) }), InvalidArgument, "only send and recv may"},
		{"no device", send, send, rows * row, BFloat16, good, InvalidArgument, "made without a device"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := c.AllReduceNorm(test.send, test.recv, test.count, test.t, test.n)
			if CodeOf(err) != test.code || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v; want %v: %s", err, test.code, test.want)
			}
		})
	}
	a := call{Op: op.Op{Coll: op.AllReduce, Count: 32, Type: BFloat16, Root: NoPeer}}
	plain := a.Signature()
	a.Norm.Row = 8
	eight := a.Signature()
	a.Norm.Row = 16
	if plain == eight || eight == a.Signature() || op.NameOf(eight) != "AllReduceNorm of bfloat16" || op.NameOf(plain) != "AllReduce of bfloat16 with sum" {
		t.Errorf("signatures %x, %x, %x: %s, %s", plain, eight, a.Signature(), op.NameOf(plain), op.NameOf(eight))
	}
}

// TestUncheckedWait: without checks, messages do not tell a Recv from a collective. A rank that
// waits in its first Recv is not in another operation than one that waits in Destroy.
func TestUncheckedWait(t *testing.T) {
	cfg := testConfig()
	cfg.Knobs.ChecksDisable = true
	withRanks(t, 3, cfg, func(c *Comm) error {
		v := []int32{int32(c.Rank())}
		switch c.Rank() {
		case 0:
			return c.Recv(Of(v), 1, Int32, 2)
		case 2:
			time.Sleep(2 * hang.Slow)
			return c.Send(Of(v), 1, Int32, 0)
		}
		return nil
	})
}

// TestNetworkDoesNotOpen: a network that cannot be opened is an error at all ranks.
func TestNetworkDoesNotOpen(t *testing.T) {
	cfg := testConfig()
	cfg.Knobs.SHMDisable, cfg.Knobs.SocketThreads = true, 1<<20
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if comms, err := CommInitAll(ctx, 2, cfg); err == nil || comms != nil || !strings.Contains(err.Error(), "threads") && CodeOf(err) != RemoteError {
		t.Errorf("%v, %v", comms, err)
	}
}
