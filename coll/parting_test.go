package coll

import (
	"errors"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
)

// TestPartedWhileCalling: a rank parts while an operation is on its way to the device, where nothing
// is to be seen of it yet: that operation waits for the rank, too.
func TestPartedWhileCalling(t *testing.T) {
	all := fakes(t)
	cfg := deviceConfig(2)
	cfg.AsNCCL = true
	comms, err := CommInitAll(t.Context(), 2, cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := comms[1]
	defer comms[0].Abort()
	defer c.Abort()
	if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil { // so that there is a device
		t.Fatal(err)
	}
	of(all, 1).graph.Store(&executor.State{Does: executor.Idle})
	if !c.claim() {
		t.Fatal("an operation is in progress")
	}
	parted := &parting{rank: 0, calls: c.seq, err: &Error{Code: RemoteError, Rank: 1, Op: "AllReduce", Peer: 0, Err: ErrAborted}, c: c}
	parted.heard()
	for end := time.Now().Add(time.Minute); c.fault.Err() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.leave()
			t.Fatal("the operation waits, and nobody breaks it")
		}
	}
	c.leave()
	if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); !errors.Is(err, ErrAborted) {
		t.Errorf("the next operation: %v", err)
	}
}
