package fabric

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/harness/hunt"
	"github.com/assay-hpc/assay/perftest/tcp"
)

// probes are the means by which a machine measures.
type probes struct {
	o     HuntOptions
	run   Runner
	key   []byte
	serve *tcp.Server
	host  string
	setup setup
	plan  plan
}

func newProbes(ctx context.Context, f *Fabric, o HuntOptions) (*probes, error) {
	p := &probes{o: o, run: f.o.Run, key: f.group.Key("hunt"), host: addr(f.group.Addr())}
	var err error
	if p.serve, err = tcp.Listen(net.JoinHostPort(f.group.Addr().String(), "0"), p.key); err != nil {
		return nil, err
	}
	p.setup = setup{Addr: net.JoinHostPort(p.host, strconv.Itoa(int(p.serve.Addr().Port()))), Host: p.host, At: o.At}
	if o.RDMA != nil {
		p.setup.Ports = o.Ports
	}
	return p, nil
}

func (p *probes) close() { p.serve.Close() }

// Times in addition to the measurement itself.
const (
	// A TCP connection's window grows this long before bytes are counted.
	warmUp = 50 * time.Millisecond
	// Small packets are sent for this long before a measurement, and in a quiet round.
	pingFor  = 100 * time.Millisecond
	quietFor = 2 * time.Second
	// A peer that small packets do not reach within this time does not answer: streams would only wait
	// for as long again.
	reachIn = 2 * time.Second
	// A peer without progress for this long is given up.
	pairLimit = 10 * time.Second
	// RDMA also opens devices and registers memory at both ends.
	rdmaLimit = time.Minute
	// Processes and GPUs start and stop within this.
	collLimit = 3 * time.Minute
)

// limit returns the longest duration of one measurement.
func (p *probes) limit() time.Duration {
	switch p.plan.Tool {
	case Coll:
		return collLimit + 2*p.plan.Duration
	case RDMA:
		return rdmaLimit + 4*p.plan.Duration + quietFor
	}
	return pairLimit + 4*p.plan.Duration + quietFor
}

// patience is how much later than the first machine another may deliver its results.
func (p *probes) patience() time.Duration { return p.limit() + 20*time.Second }

// measure runs a machine's jobs of a round.
func (p *probes) measure(ctx context.Context, f *Fabric, jobs []job, d *driver) ([]found, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit(), fmt.Errorf("no result within %v", p.limit()))
	defer cancel()
	switch p.plan.Tool {
	case TCP:
		return each(jobs, func(j job) *found { return p.tcp(ctx, j) }), nil
	case Coll:
		return each(jobs, func(j job) *found { return p.coll(ctx, j) }), nil
	case RDMA:
		return p.rdma(ctx, f, jobs, d)
	}
	return nil, fmt.Errorf("a hunt with %q", p.plan.Tool)
}

// each runs all jobs concurrently.
func each(jobs []job, do func(job) *found) []found {
	all := make([]*found, len(jobs))
	var wg sync.WaitGroup
	for i, j := range jobs {
		wg.Go(func() { all[i] = do(j) })
	}
	wg.Wait()
	out := []found{}
	for _, one := range all {
		if one != nil {
			out = append(out, *one)
		}
	}
	return out
}

func (j job) found() *found { return &found{Hunt: j.Hunt, Group: j.Group, Me: j.Me} }

func (j job) failed(err error) *found {
	out := j.found()
	out.Error = strings.Join(strings.Fields(err.Error()), " ")
	return out
}

// tcp measures one pair: small packets, and unless it is to be quiet, streams. The first machine of
// the pair measures both directions.
func (p *probes) tcp(ctx context.Context, j job) *found {
	if j.Me != 0 {
		return nil
	}
	out := j.found()
	out.There, out.Back = &hunt.Flow{}, &hunt.Flow{}
	pings := tcp.PingOptions{Duration: pingFor}
	if j.Quiet {
		pings.Duration = quietFor
	}
	begun := time.Now()
	got, err := tcp.Ping(ctx, j.Peer, p.key, pings)
	if err == nil {
		out.RTT = got.RTT
		out.There.Packets, out.Back.Packets = packets(got.Forward, pings), packets(got.Back, pings)
	} else {
		out.There.Packets.Silent, out.Back.Packets.Silent = true, true
	}
	switch {
	case err != nil && (j.Quiet || time.Since(begun) > reachIn):
		return j.failed(err)
	case j.Quiet:
		return out
	}
	begun = time.Now()
	o := tcp.Options{Duration: p.plan.Duration, Warmup: warmUp, Limit: p.limit()}
	r, err := tcp.Measure(ctx, j.Peer, p.key, o)
	// There may be no data for a while: the peer may be busy, or the first packets were lost and
	// TCP waits before it resends them.
	for out.Tries = 1; err != nil && out.Tries < maxTries && time.Since(begun) < p.limit()/4; out.Tries++ {
		o.Duration, o.Limit = 2*o.Duration, p.limit()-time.Since(begun)
		r, err = tcp.Measure(ctx, j.Peer, p.key, o)
	}
	if err != nil {
		return j.failed(err)
	}
	out.There.Value, out.There.Resent = r.Forward.Rate, r.Forward.ResentShare()
	out.Back.Value, out.Back.Resent = r.Back.Rate, r.Back.ResentShare()
	return out
}

// packets converts what became of pings. How many were lost of those that were all lost says nothing.
func packets(x tcp.Packets, o tcp.PingOptions) hunt.Packets {
	if x.Lost == x.Sent {
		return hunt.Packets{Silent: x.Sent > 0}
	}
	interval := cmp.Or(o.Interval, time.Millisecond)
	return hunt.Packets{Sent: x.Sent, Lost: x.Lost, Twice: x.Twice, Swapped: x.Swapped, InRow: max(0, int(x.Outage/interval)-1), Late: x.Late}
}

// rdma lets the second machine of each pair listen and the first one measure.
func (p *probes) rdma(ctx context.Context, f *Fabric, jobs []job, d *driver) ([]found, error) {
	type waiting struct {
		wait func() (Ends, error)
		err  error
	}
	listens := make([]waiting, len(jobs))
	doors := make([]door, len(jobs))
	var wg sync.WaitGroup
	for i, j := range jobs {
		doors[i] = door{Hunt: j.Hunt, Group: j.Group}
		if j.Me == 0 {
			continue
		}
		wg.Go(func() {
			doors[i].At, listens[i].wait, listens[i].err = p.o.RDMA.Listen(ctx, j.Port, Measurement{p.plan.Duration, j.Quiet})
			if listens[i].err != nil {
				doors[i].Error = listens[i].err.Error()
			}
		})
	}
	wg.Wait()
	doors = slices.DeleteFunc(doors, func(at door) bool { return at.At == Doors{} && at.Error == "" })
	b, err := json.Marshal(doors)
	if err != nil {
		return nil, err
	}
	if b, err = f.exchangeWithin(p.patience(), b, func(all [][]byte) ([][]byte, error) { return d.route(all) }); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &doors); err != nil {
		return nil, err
	}
	at := map[[2]int]door{}
	for _, one := range doors {
		at[[2]int{one.Hunt, one.Group}] = one
	}
	place := map[job]int{}
	for i, j := range jobs {
		place[j] = i
	}
	return each(jobs, func(j job) *found {
		if j.Me != 0 {
			l := listens[place[j]]
			if l.err != nil {
				return nil // the other machine reports it
			}
			ends, err := l.wait()
			if err != nil {
				return j.failed(err)
			}
			out := j.found()
			out.Ends = ends
			return out
		}
		to := at[[2]int{j.Hunt, j.Group}]
		if to.At == (Doors{}) {
			return j.failed(errors.New(cmp.Or(to.Error, "the other one does not wait")))
		}
		m, err := p.o.RDMA.Measure(ctx, j.Port, j.Peer, to.At, Measurement{p.plan.Duration, j.Quiet})
		if err != nil {
			return j.failed(err)
		}
		out := j.found()
		out.There, out.Back = &hunt.Flow{Value: m.There, Packets: m.Trips.packets()}, &hunt.Flow{Value: m.Back, Packets: m.Trips.packets()}
		out.RTT, out.Tail, out.Held, out.Ends = m.Trips.Median, m.Trips.Tail, m.Trips.Held, m.Ends
		return out
	}), nil
}

// coll runs the all-reduce of one group. Each machine starts a process for it.
func (p *probes) coll(ctx context.Context, j job) *found {
	at := jobPosition{Rank: j.Me, Size: j.Size, First: j.First, Token: j.Token}
	if j.Me == 0 {
		at.First = p.host
	}
	ms := strconv.FormatFloat(float64(p.plan.Duration)/float64(time.Millisecond), 'f', -1, 64)
	out, err := p.run(ctx, at.environ(), slices.Concat([]string{"coll", "all_reduce"}, p.o.Coll, []string{"-b", p.plan.Bytes, "-e", p.plan.Bytes, "--min-time", ms, "--format", "json"})...)
	switch {
	case err != nil:
		return j.failed(err)
	case out.Status != 0:
		return j.failed(fmt.Errorf("status %d: %s", out.Status, lastWords(out.Stderr)))
	case j.Me != 0:
		return nil
	}
	var doc perf.Document
	if err := json.Unmarshal(out.Stdout, &doc); err != nil {
		return j.failed(fmt.Errorf("its report: %w", err))
	}
	if len(doc.Rows) == 0 {
		return j.failed(fmt.Errorf("nothing was measured: %s", doc.Error))
	}
	r := j.found()
	r.There = &hunt.Flow{Value: doc.Rows[len(doc.Rows)-1].OutOfPlace.BusBW * 1e9}
	return r
}
