package colltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main(m, map[string]func(Self) error{
		"talk":   talk,
		"hang":   hang,
		"ring":   ring,
		"deaf":   deaf,
		"stream": stream,
	})
}

// talk says who it is, with the argument as exit status.
func talk(s Self) error {
	s.Say("rank %d of %d", s.Rank, s.Size)
	fmt.Fprintln(os.Stderr, "extra="+os.Getenv("EXTRA"))
	if s.Rank == 0 {
		if err := s.Publish("greeting", []byte("hello")); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	data, err := s.Await(ctx, "greeting")
	if err != nil {
		return err
	}
	s.Say("got %s", data)
	if s.Arg == "fail" && s.Rank == 1 {
		return errors.New("as asked")
	}
	return nil
}

func hang(s Self) error {
	s.Say("hanging")
	time.Sleep(time.Hour)
	return nil
}

// ring keeps a connection to the next rank, and fails when either neighbour is
// gone.
func ring(s Self) error {
	l, err := net.Listen("unix", filepath.Join(s.Dir, fmt.Sprint(s.Rank)))
	if err != nil {
		return err
	}
	lost := make(chan error, 2)
	s.Say("listening")
	follow := func(c net.Conn, err error) {
		if err == nil {
			_, err = io.Copy(io.Discard, c)
		}
		lost <- fmt.Errorf("a neighbour is lost: %v", err)
	}
	go func() { follow(l.Accept()) }()
	go func() {
		deadline := time.Now().Add(20 * time.Second)
		for {
			c, err := net.Dial("unix", filepath.Join(s.Dir, fmt.Sprint((s.Rank+1)%s.Size)))
			if err == nil || time.Now().After(deadline) {
				follow(c, err)
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return <-lost
}

// deaf does not notice that a rank dies, and leaves shared memory behind.
func deaf(s Self) error {
	if err := os.WriteFile("/dev/shm/"+s.Arg, nil, 0o600); err != nil {
		return err
	}
	select {}
}

// stream has rank 1 send a known text to rank 0 at the address in Arg, and
// then has both wait until the other is heard of no more.
func stream(s Self) error {
	text := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	var c net.Conn
	if s.Rank == 0 {
		l, err := net.Listen("tcp", s.Arg)
		if err != nil {
			return err
		}
		if err := s.Publish("up", nil); err != nil {
			return err
		}
		if c, err = l.Accept(); err != nil {
			return err
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if !bytes.Equal(got, text) {
			return errors.New("another text arrived")
		}
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if _, err := s.Await(ctx, "up"); err != nil {
			return err
		}
		var err error
		if c, err = net.Dial("tcp", s.Arg); err != nil {
			return err
		}
		if _, err := c.Write(text); err != nil {
			return err
		}
	}
	s.Say("streamed")
	const patience = 15 * time.Second
	c.SetReadDeadline(time.Now().Add(patience))
	go func() { // a heart that beats until it cannot
		for {
			if _, err := c.Write([]byte{1}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	for {
		if _, err := c.Read(make([]byte, 64)); errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("silence")
		} else if err != nil {
			return err
		}
		c.SetReadDeadline(time.Now().Add(patience))
	}
}
