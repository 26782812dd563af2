package confine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A message is one of the lines between a [Remote] and [Serve].
type message struct {
	ID      int             `json:"id,omitempty"`
	Program *Program        `json:"program,omitempty"` // to be run
	Outcome *Outcome        `json:"outcome,omitempty"` // of the program with that ID
	Result  json.RawMessage `json:"result,omitempty"`  // all is done
	Error   string          `json:"error,omitempty"`   // nothing can be done
}

// A Remote runs programs at the other end of a connection.
type Remote struct {
	in *json.Decoder

	mu   sync.Mutex // guards the rest
	out  *json.Encoder
	last int
	open map[int]chan Outcome
	err  error
}

// Connect reads the other end's request, and returns what runs its programs.
func Connect(r io.Reader, w io.Writer, request any) (*Remote, error) {
	m := &Remote{in: json.NewDecoder(r), out: json.NewEncoder(w), open: map[int]chan Outcome{}}
	if err := m.in.Decode(request); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	go m.receive()
	return m, nil
}

func (m *Remote) receive() {
	for {
		var msg message
		err := m.in.Decode(&msg)
		m.mu.Lock()
		if err != nil {
			m.err = err
			for id, answer := range m.open {
				answer <- Failure("the connection to what runs programs ended: %v", err)
				delete(m.open, id)
			}
			m.mu.Unlock()
			return
		}
		if answer := m.open[msg.ID]; answer != nil && msg.Outcome != nil {
			answer <- *msg.Outcome
			delete(m.open, msg.ID)
		}
		m.mu.Unlock()
	}
}

// Self implements [Runner].
func (m *Remote) Self() string { return Path }

// Run implements [Runner].
func (m *Remote) Run(ctx context.Context, p Program) Outcome {
	p.Limits, p.Strict = p.Limits.until(ctx), true
	answer := make(chan Outcome, 1)
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return Failure("the connection to what runs programs ended: %v", m.err)
	}
	m.last++
	m.open[m.last] = answer
	err := m.out.Encode(message{ID: m.last, Program: &p})
	m.mu.Unlock()
	if err != nil {
		return Failure("%v", err)
	}
	return <-answer // the other end keeps the limit, too
}

// Finish sends the result, or the error, that the other end's Serve returns.
func (m *Remote) Finish(result any, err error) error {
	var msg message
	if err == nil {
		msg.Result, err = json.Marshal(result)
	}
	if err != nil {
		msg.Error = err.Error()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.out.Encode(msg)
}

// maxMessages bounds what Serve reads. The largest message is a result.
const maxMessages = 256 << 20

// Serve sends a request to a [Remote], runs the programs that it asks for, and returns its result.
func Serve(ctx context.Context, r io.Reader, w io.Writer, request any, run func(context.Context, Program) Outcome) (json.RawMessage, error) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var mu sync.Mutex
	out := json.NewEncoder(w)
	if err := out.Encode(request); err != nil {
		return nil, err
	}
	in := json.NewDecoder(io.LimitReader(r, maxMessages))
	for {
		var msg message
		switch err := in.Decode(&msg); {
		case errors.Is(err, io.EOF):
			return nil, errors.New("the harness ended without a result")
		case err != nil:
			return nil, err
		case msg.Error != "":
			return nil, errors.New(msg.Error)
		case msg.Result != nil:
			return msg.Result, nil
		case msg.Program == nil:
			return nil, errors.New("the harness sent a message without content")
		}
		running.Go(func() {
			o := run(ctx, *msg.Program)
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(message{ID: msg.ID, Outcome: &o}) // its end is seen by the reader
		})
	}
}
