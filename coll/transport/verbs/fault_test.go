//go:build cgo && linux

package verbs_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/slots"
	"github.com/assay-hpc/assay/coll/transport/transporttest"
	"github.com/assay-hpc/assay/coll/transport/verbs"
)

// childEnv makes the test binary rank 1 of two, which sends and receives until
// it is killed.
const childEnv = "ASSAY_VERBS_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		fmt.Fprintln(os.Stderr, childMain())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func childMain() error {
	n, err := verbs.Find(verbs.Selection{HCA: rails()[len(rails())-1], GIDIndex: -1})
	if err != nil {
		return err
	}
	e, err := verbs.Open(verbs.Options{
		Net: n, Params: defaultParams(),
		Options: slots.Options{Rank: 1, Key: testKey, Comm: []byte("test"), Fault: new(transport.Fault)},
	})
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(e.Info()))
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	info, err := hex.DecodeString(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	tx, err := e.Tx(context.Background(), 0, info, 0)
	if err != nil {
		return err
	}
	rx, err := e.Rx(context.Background(), 0, info, 0)
	if err != nil {
		return err
	}
	for {
		if tx.Reserve(1000) != nil {
			tx.Commit(1000, transport.Header{})
		}
		if _, _, ok := rx.Peek(); ok {
			rx.Release()
		}
	}
}

// startChild starts rank 1 in a process of its own, and returns what kills it
// and its Info.
func startChild(t *testing.T, own transporttest.Rank) (kill func(), info []byte) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() { cmd.Process.Kill(); cmd.Wait() }
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if info, err = hex.DecodeString(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, hex.EncodeToString(own.Info())+"\n")
	return kill, info
}

// TestKilledPeer: the end of a peer's process is noticed within moments, on a
// connection that is used.
func TestKilledPeer(t *testing.T) {
	own := openRank(t, 0, verbs.Options{})
	kill, info := startChild(t, own)
	ctx, cancel := context.WithTimeout(t.Context(), transporttest.Patience)
	defer cancel()
	tx, err := own.Tx(ctx, 1, info, 0)
	if err != nil {
		t.Fatal(err)
	}
	rx, err := own.Rx(ctx, 1, info, 0)
	if err != nil {
		t.Fatal(err)
	}
	received := 0
	step := func() bool {
		if tx.Reserve(1000) != nil {
			tx.Commit(1000, transport.Header{})
		}
		if p, _, ok := rx.Peek(); ok && len(p) == 1000 {
			rx.Release()
			received++
		}
		return received > 100
	}
	if err := transporttest.Poll([]transporttest.Rank{own}, step); err != nil {
		t.Fatal(err)
	}
	kill()
	err = transporttest.Poll([]transporttest.Rank{own}, func() bool { step(); return false })
	var lost *transport.PeerError
	if !errors.As(err, &lost) || lost.Rank != 1 || lost.By != 0 {
		t.Errorf("%v; want the loss of rank 1", err)
	}
	t.Log(err)
}

// TestLinkDown: when packets cannot leave, the error names the device,
// the queue pair, and the port that went down.
func TestLinkDown(t *testing.T) {
	if os.Getenv("ASSAY_RDMA_VM") == "" {
		t.Skip("links are taken down in the virtual machine only")
	}
	set := func(state string) {
		if out, err := exec.Command("ip", "link", "set", "v0", state).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	opt := verbs.Options{Params: params(func(p *verbs.Params) { p.Timeout, p.Retries = 14, 3 })}
	ranks := opener(opt)(t, 2)
	tx, rx := transporttest.Connect(t, ranks, 0, 1, 0)
	stream(t, ranks, tx, rx, 1000, 3)
	set("down")
	defer time.Sleep(time.Second) // for neighbours to find each other again
	defer set("up")
	// Nobody asks the sender for anything any more: the fault comes by itself.
	tx.Reserve(1000)
	tx.Commit(1000, transport.Header{})
	err := transporttest.Poll(ranks, func() bool { return false })
	var lost *transport.PeerError
	if !errors.As(err, &lost) || lost.Rank != 1 || lost.By != 0 {
		t.Fatalf("%v; want that rank 0 lost rank 1", err)
	}
	for _, want := range []string{"rxe0 port 1", "QP 0x", "to rank 1's rxe1 port 1", "failed: ", "lost its link"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	t.Log(err)
}

// TestCannotConnect: the error of a connection that cannot be made comes back
// from Tx, with what failed.
func TestCannotConnect(t *testing.T) {
	if os.Getenv("ASSAY_RDMA_VM") == "" {
		t.Skip("it is about the addresses of the virtual machine")
	}
	opt := verbs.Options{Options: slots.Options{MaxMessage: 1000}}
	ranks := opener(opt)(t, 1)
	n, err := verbs.Find(verbs.Selection{HCA: "rxe1", GIDIndex: 0}) // a link-local address, of another family
	if err != nil {
		t.Fatal(err)
	}
	opt.Net = n
	ranks = append(ranks, openRank(t, 1, opt))
	if _, err := ranks[0].Tx(t.Context(), 1, ranks[1].Info(), 0); err == nil || !strings.Contains(err.Error(), "the receiver: connecting to rank 0's rxe0 port 1: ibv_modify_qp(RTR)") {
		t.Errorf("%v", err)
	} else {
		t.Log(err)
	}
}
