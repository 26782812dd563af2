package mesh

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/assay-hpc/assay/perftest/probe"
)

// meeting is how long a server waits for its client, which has been told the server's address.
var meeting = 20 * time.Second

// farewell is how long a server whose client failed has to report its own result.
const farewell = time.Second

// measure carries out the steps. A cell with an error is not measured again.
func (r *runner) measure(ctx context.Context, steps [][]flow) error {
	for i, step := range steps {
		if r.o.Progress != nil {
			r.o.Progress(Progress{i + 1, len(steps), r.names(step)})
		}
		for range r.o.Samples {
			if err := r.sample(ctx, r.sound(step)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) names(step []flow) (out []string) {
	for _, f := range step {
		out = append(out, r.report.Name(f.From)+" → "+r.report.Name(f.To))
	}
	return out
}

// sound returns the flows without an error. The result is the same on all ranks.
func (r *runner) sound(step []flow) (out []flow) {
	for _, f := range step {
		if r.report.Cell(f.From, f.To).Error == "" {
			out = append(out, f)
		}
	}
	return out
}

// client is the port of a flow's client. The client starts each message; with reads it receives the
// data.
func (r *runner) client(f flow) int {
	if r.o.Config.Operation == probe.Read {
		return f.To
	}
	return f.From
}

func (r *runner) server(f flow) int { return f.From + f.To - r.client(f) }

// A listening is where a flow's server waits, or the reason why it does not.
type listening struct {
	Port  int
	Error string
}

// A side is what one end reports about a flow.
type side struct {
	Value, Reverse float64 // measured by the client; Reverse is of the other direction
	Bytes          uint64  // per message
	Counters       map[string]uint64
	Error          string
}

// A waiting is a server that runs in a goroutine.
type waiting struct {
	cancel context.CancelCauseFunc
	done   chan side
}

// result waits for the server to finish. If its client failed before it connected, no other client
// will connect, so the server is cancelled after farewell.
func (w waiting) result(clientFailed bool) side {
	if clientFailed {
		late := time.AfterFunc(farewell, func() { w.cancel(errors.New("the client failed")) })
		defer late.Stop()
	}
	return <-w.done
}

// sample measures the flows once, all at the same time.
func (r *runner) sample(ctx context.Context, flows []flow) error {
	if len(flows) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // stops the servers that have no client
	servers, addrs := r.serve(ctx, flows)
	lists, err := gather(ctx, r.g, addrs)
	if err != nil {
		cancel()
		for _, s := range servers {
			<-s.done
		}
		return err
	}
	at := merged(lists)
	clients, err := gather(ctx, r.g, r.connect(ctx, flows, at))
	if err != nil {
		cancel()
	}
	mine := map[int]side{}
	for i, s := range servers {
		failed := err != nil || r.of(clients, r.client(flows[i]), i).Error != ""
		mine[i] = s.result(failed)
	}
	if err != nil {
		return err
	}
	ends, err := gather(ctx, r.g, mine)
	if err != nil {
		return err
	}
	for i, f := range flows {
		r.take(f, at[i], r.of(clients, r.client(f), i), r.of(ends, r.server(f), i))
	}
	return nil
}

// of is what a port's process reported about the flow at an index.
func (r *runner) of(all []map[int]side, port, place int) side {
	return all[r.report.Ports[port].Rank][place]
}

// serve starts the servers of this process's ports, and returns where they listen.
func (r *runner) serve(ctx context.Context, flows []flow) (map[int]waiting, map[int]listening) {
	servers, addrs := map[int]waiting{}, map[int]listening{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, f := range flows {
		if !r.own[r.server(f)] {
			continue
		}
		wg.Go(func() { // opening a device is slow
			port, w, err := r.listen(ctx, f)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				addrs[i] = listening{Error: oneLine(err)}
				return
			}
			servers[i], addrs[i] = w, listening{Port: port}
		})
	}
	wg.Wait()
	return servers, addrs
}

// listen starts one server, on a port number that the system chooses.
func (r *runner) listen(ctx context.Context, f flow) (port int, w waiting, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := r.config(r.server(f))
	c.Port = 0
	ready := make(chan string, 1)
	done := make(chan side, 1)
	failed := make(chan error, 1)
	var late *time.Timer
	var mu sync.Mutex
	ev := probe.Events{
		Waiting: func(addr string) {
			mu.Lock()
			late = time.AfterFunc(meeting, func() { cancel(fmt.Errorf("no client connected within %v", meeting)) })
			mu.Unlock()
			ready <- addr
		},
		Header: func(probe.Info) {
			mu.Lock()
			defer mu.Unlock()
			if late != nil {
				late.Stop()
			}
		},
	}
	go func() {
		defer cancel(nil)
		before := r.counters(r.server(f))
		_, err := r.run(ctx, c, ev)
		s := side{Counters: increases(before, r.counters(r.server(f)))}
		if err != nil {
			s.Error = oneLine(err)
		}
		failed <- err
		done <- s
	}()
	select {
	case addr := <-ready:
		at, err := netip.ParseAddrPort(addr)
		if err != nil {
			cancel(err)
			return 0, waiting{}, err
		}
		return int(at.Port()), waiting{cancel, done}, nil
	case err := <-failed:
		if err == nil {
			err = errors.New("the server ended without a client")
		}
		return 0, waiting{}, err
	}
}

// config is the configuration of a measurement, for one of this process's ports.
func (r *runner) config(port int) probe.Config {
	c, p := r.o.Config, &r.report.Ports[port]
	c.Device, c.IBPort, c.Host = p.Device, p.Port, ""
	return c
}

// run measures within the time limit.
func (r *runner) run(ctx context.Context, c probe.Config, ev probe.Events) (*probe.Outcome, error) {
	if r.o.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.o.Limit, fmt.Errorf("the measurement was not done within %v", r.o.Limit))
		defer cancel()
	}
	out, err := r.o.Measure(ctx, c, ev)
	if err != nil && errors.Is(err, ctx.Err()) && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return out, err
}

// connect runs the clients of this process's ports, all at once.
func (r *runner) connect(ctx context.Context, flows []flow, at map[int]listening) map[int]side {
	out := map[int]side{} // by the flow's index
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, f := range flows {
		if !r.own[r.client(f)] || at[i].Error != "" {
			continue
		}
		wg.Go(func() {
			s := r.askOne(ctx, f, at[i].Port)
			mu.Lock()
			out[i] = s
			mu.Unlock()
		})
	}
	wg.Wait()
	return out
}

func (r *runner) askOne(ctx context.Context, f flow, port int) side {
	from, to := r.client(f), r.report.Ports[r.server(f)]
	c := r.config(from)
	c.Host, c.Port = r.hellos[to.Rank].Addr, port
	before := r.counters(from)
	out, err := r.run(ctx, c, probe.Events{})
	s := side{Counters: increases(before, r.counters(from))}
	if err == nil {
		s.Value, s.Reverse, err = figures(&c, out)
		s.Bytes = bytesOf(out)
	}
	if err != nil {
		s.Error = oneLine(err)
	}
	return s
}

// figures returns a client's results: bytes per second or nanoseconds and, for a bidirectional
// test, those of the other direction.
func figures(c *probe.Config, out *probe.Outcome) (value, reverse float64, err error) {
	if len(out.Rows) > 0 {
		row := out.Rows[len(out.Rows)-1]
		switch {
		case row.Latency != nil:
			value = row.Latency.Typical
			if value == 0 { // a test limited by time reports only the average
				value = row.Latency.Average
			}
		case row.Bandwidth == nil:
		case !c.Bidirectional:
			value = row.Bandwidth.Average
		case row.Local != nil && row.Remote != nil:
			value, reverse = row.Local.Average, row.Remote.Average
		default: // only the sum is known
			value, reverse = row.Bandwidth.Average/2, row.Bandwidth.Average/2
		}
	}
	if !(value > 0) {
		return 0, 0, errors.New("the measurement has no result")
	}
	return value, reverse, nil
}

// bytesOf is the size of a message.
func bytesOf(out *probe.Outcome) uint64 {
	for _, row := range out.Rows {
		switch {
		case row.Latency != nil:
			return row.Latency.Bytes
		case row.Bandwidth != nil:
			return row.Bandwidth.Bytes
		}
	}
	return 0
}

// take puts what both ends of a flow reported, mine by the client, into its cells.
func (r *runner) take(f flow, at listening, mine, theirs side) {
	client, server := r.client(f), r.server(f)
	if mine.Bytes > 0 { // for datagrams it depends on the MTU
		r.report.Bytes = mine.Bytes
	}
	var problems []string
	for _, p := range []struct {
		port int
		text string
	}{{client, mine.Error}, {server, at.Error}, {server, theirs.Error}} {
		if p.text != "" {
			problems = append(problems, r.report.Name(p.port)+": "+p.text)
		}
	}
	if mine.Value == 0 && len(problems) == 0 {
		problems = []string{r.report.Name(client) + ": it did not measure"}
	}
	fill := func(c *Cell, value float64, from, to map[string]uint64) {
		if c == nil {
			return
		}
		if c.Error = strings.Join(problems, "; "); c.Error == "" {
			c.Samples = append(c.Samples, value)
		}
		c.FromCounters, c.ToCounters = added(c.FromCounters, from), added(c.ToCounters, to)
	}
	from, to := mine.Counters, theirs.Counters
	if client == f.To {
		from, to = to, from
	}
	fill(r.report.Cell(f.From, f.To), mine.Value, from, to)
	if r.o.Config.Bidirectional && f.From != f.To {
		fill(r.report.Cell(f.To, f.From), mine.Reverse, to, from)
	}
}

// added adds counters to others.
func added(sum, more map[string]uint64) map[string]uint64 {
	for name, v := range more {
		if sum == nil {
			sum = map[string]uint64{}
		}
		sum[name] += v
	}
	return sum
}

// oneLine formats an error in one line.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}
