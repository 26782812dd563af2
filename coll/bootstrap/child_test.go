package bootstrap

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"time"
)

// child is what this test binary does when a launcher, or a test, runs it as a
// process of a job. The exit status says whether it went well.
func child(role string) int {
	o := Options{
		Ifname: os.Getenv("NCCL_SOCKET_IFNAME"), Family: os.Getenv("NCCL_SOCKET_FAMILY"),
		Timeout: 2 * time.Minute,
		Logf:    func(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) },
	}
	var err error
	switch role {
	case "world":
		err = childWorld(o)
	case "victim":
		err = childVictim(o)
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childWorld brings up two communicators, one after the other, from what the
// launcher says, and prints a line.
func childWorld(o Options) error {
	w, err := Detect(os.Getenv)
	if err != nil {
		return err
	}
	for round := range 2 {
		if err := childRound(w, o, round); err != nil {
			return fmt.Errorf("%v: %w", w, err)
		}
	}
	fmt.Printf("ok %v\n", w)
	return w.Close()
}

func childRound(w World, o Options, round int) error {
	id, root, err := ShareID(context.Background(), w, o)
	if err != nil {
		return err
	}
	if root != nil {
		defer root.Close()
	}
	n, err := Join(context.Background(), id, w.Rank, w.Size, o)
	if err != nil {
		return err
	}
	got, err := n.AllGather(context.Background(), fmt.Appendf(nil, "%d/%d", w.Rank, round))
	if err != nil {
		return err
	}
	for r := range got {
		if want := fmt.Sprintf("%d/%d", r, round); string(got[r]) != want {
			return fmt.Errorf("rank %d gave %q; want %q", r, got[r], want)
		}
	}
	if err := n.Barrier(context.Background()); err != nil {
		return err
	}
	return n.Close()
}

// childVictim is told by a test who it is. It prints "up" when the communicator
// is, and whoever dies; it ends when its input does.
func childVictim(o Options) error {
	var id ID
	if _, err := hex.Decode(id[:], []byte(os.Getenv("BOOTSTRAP_TEST_ID"))); err != nil {
		return err
	}
	rank, err1 := strconv.Atoi(os.Getenv("BOOTSTRAP_TEST_RANK"))
	size, err2 := strconv.Atoi(os.Getenv("BOOTSTRAP_TEST_SIZE"))
	silence, err3 := time.ParseDuration(os.Getenv("BOOTSTRAP_TEST_SILENCE"))
	if s := os.Getenv("BOOTSTRAP_TEST_TIMEOUT"); s != "" {
		o.Timeout, err3 = time.ParseDuration(s)
	}
	if err1 != nil || err2 != nil || err3 != nil {
		return fmt.Errorf("%v, %v, %v", err1, err2, err3)
	}
	o.Silence = silence
	o.Logf = nil
	o.OnDeath = func(dead int, what string) { fmt.Printf("dead %d %s\n", dead, what) }
	if id == (ID{}) {
		root, err := NewRoot(o)
		if err != nil {
			return err
		}
		defer root.Close()
		id = root.ID()
		fmt.Printf("id %x\n", id[:])
	}
	n, err := Join(context.Background(), id, rank, size, o)
	if err != nil {
		return err
	}
	if err := n.Barrier(context.Background()); err != nil {
		return err
	}
	fmt.Println("up")
	os.Stdin.Read(make([]byte, 1))
	if n.Err() != nil {
		n.Abort()
		return nil
	}
	return n.Close()
}
