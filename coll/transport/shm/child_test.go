package shm

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
)

func (e *Endpoint) hexInfo() []byte { return hex.AppendEncode(nil, e.Info()) }

// TestChild is the other process of TestProcesses.
func TestChild(t *testing.T) {
	v := os.Getenv(childEnv)
	if v == "" {
		t.Skip("this is the child of TestProcesses")
	}
	secret := uint64(0xfeed)
	if strings.HasPrefix(v, "wrong") {
		secret++
	}
	info, err := hex.DecodeString(v[len("right"):])
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Rank: 1, Ranks: 2, Channels: 1, Slot: 4096, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Reach(0, info); err != nil {
		t.Fatal(err)
	}
	rx, err := e.Rx(context.Background(), 0, info, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, _, ok := rx.Peek()
	fmt.Printf("got: %s %v\n", p, ok)
}
