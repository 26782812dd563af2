//go:build cuda && cgo

package driver

import (
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
)

// Memory of this process that another one reads and writes.
func TestIPC(t *testing.T) {
	gpus(t, 1)
	if all, err := Devices(); err != nil || !all[0].CanIPC {
		t.Skip("the device cannot share memory among processes")
	}
	const n = 1 << 20
	p := malloc(t, 4*n)
	s := stream(t)
	l := prepare(t, function(t, kernels, "fill"), s, p, 21)
	l.SetGrid(n/1024, 1, 1)
	l.SetBlock(1024, 1, 1)
	check(t, l.Run(), s.Synchronize())
	mem, err := MemHandle(p)
	check(t, err)
	if _, err := OpenMem(mem); err == nil {
		t.Error("a handle can be opened in the process that it is from")
	}
	if out, err := start(t, "TestIPCChild", fmt.Sprintf("%x", mem)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := counting(words(t, p, n), 22); err != nil {
		t.Errorf("after the other process: %v", err)
	}
}

func TestIPCChild(t *testing.T) {
	handle := child(t)
	ctx := gpus(t, 1)
	var mem [64]byte
	if _, err := hex.Decode(mem[:], []byte(handle)); err != nil {
		t.Fatal(err)
	}
	check(t, ctx[0].Bind())
	p, err := OpenMem(mem)
	check(t, err)
	const n = 1 << 20
	s := stream(t)
	q := malloc(t, 4*n)
	l := prepare(t, function(t, kernels, "fill"), s, p, 22)
	l.SetGrid(n/1024, 1, 1)
	l.SetBlock(1024, 1, 1)
	check(t, CopyAsync(q, p, 4*n, s), l.Run(), s.Synchronize())
	if err := counting(words(t, q, n), 21); err != nil {
		t.Error(err)
	}
	check(t, CloseMem(p))
}

// A kernel that stores to nowhere costs the process its context, not the machine
// its GPU.
func TestBadPointer(t *testing.T) {
	gpus(t, 1)
	if out, err := start(t, "TestBadPointerChild", "bad").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := malloc(t, 4)
	check(t, Memset32(p, 1, 1))
	if w := words(t, p, 1); w[0] != 1 {
		t.Errorf("%d, want 1", w[0])
	}
}

func TestBadPointerChild(t *testing.T) {
	child(t)
	check(t, Init())
	c, err := Open(0)
	check(t, err, c.Bind())
	m, err := Load(kernels)
	check(t, err)
	f, err := m.Function("fill")
	check(t, err)
	s, err := NewStream(0)
	check(t, err)
	l := prepare(t, f, s, 16, 0)
	check(t, l.Run())
	for i := range 2 {
		var e *Error
		if err := s.Synchronize(); !errors.Is(err, ErrKernel) || !errors.As(err, &e) || !e.Lost() {
			t.Errorf("Synchronize %d after a store to address 16: %v", i, err)
		}
	}
	if _, err := Malloc(1); !errors.Is(err, ErrKernel) {
		t.Errorf("Malloc in a context that is lost: %v", err)
	}
}
