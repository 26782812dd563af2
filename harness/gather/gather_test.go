package gather

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/meet"
	"github.com/assay-hpc/assay/internal/result"
)

var token = []byte("a token for tests")

// document is a node's certificate of about 25 kB, with one slow GPU on some.
func document(t testing.TB, rank int) []byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(rank), 5))
	p := certificate.Predicate{Suite: "node", Started: time.Unix(1e9, 0), Finished: time.Unix(1e9+60, 0)}
	for i := range 12 {
		r := result.Result{ID: fmt.Sprintf("bandwidth/family%d", i), Title: "copies between host and GPUs", Verdict: result.Pass, Seconds: 2}
		for gpu := range 8 {
			v := 380 * math.Exp(0.02*rng.NormFloat64())
			o := result.Object{Name: fmt.Sprintf("GPU %d", gpu), ID: "GPU-00000000-0000-0000-0000-000000000000", Quantity: "write", Verdict: result.Pass}
			if rank%1000 == 7 && i == 3 && gpu == 2 {
				v /= 2
				o.Verdict, o.Reason = result.Fail, "it is below the limit"
				r.Verdict, r.Reason = result.Fail, "GPU 2 is below the limit"
			}
			o.Measured = &result.Measurement{Value: v, Unit: "GB/s", Expected: 400, Source: "data sheet", Ratio: v / 400,
				Limit: &result.Limit{Value: 300, Kind: result.AtLeast, Source: "the database"}}
			r.Objects = append(r.Objects, o)
		}
		p.Results = append(p.Results, r)
	}
	s := certificate.New(p)
	if err := s.SetNode(&certificate.Node{Name: host(rank), Identity: []string{fmt.Sprint(rank)}}); err != nil {
		t.Fatal(err)
	}
	b, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func host(rank int) string { return fmt.Sprintf("node%d", rank) }

func summary(t testing.TB, rank int) *Summary {
	s, err := certificate.Parse(document(t, rank))
	if err != nil {
		t.Fatal(err)
	}
	return Summarize(rank, s)
}

// A job is ranks in this process.
type job struct {
	size      int
	o         Options
	listeners []net.Listener
	addrs     []string
}

func newJob(t testing.TB, size, fanout int, limit time.Duration) *job {
	t.Helper()
	j := &job{size: size, o: Options{Size: size, Fanout: fanout, Token: token, Limit: limit, Name: host}, listeners: make([]net.Listener, size), addrs: make([]string, size)}
	for r := range size {
		if len(children(r, size, fanout)) == 0 {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		j.listeners[r], j.addrs[r] = l, l.Addr().String()
		t.Cleanup(func() { l.Close() })
	}
	return j
}

func (j *job) options(rank int) Options {
	o := j.o
	o.Rank, o.Listener = rank, j.listeners[rank]
	o.Peers = func(_ context.Context, r int) (string, error) { return j.addrs[r], nil }
	return o
}

// run starts all ranks, those in odd by another function, and returns rank 0's
// summary and what the ranks' parts cost.
func (j *job) run(t testing.TB, own func(rank int) *Summary, odd map[int]func(ctx context.Context, o Options)) (*Summary, []stats, []error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stats, errs := make([]stats, j.size), make([]error, j.size)
	var out *Summary
	var wg, others sync.WaitGroup
	for r := range j.size {
		if f, ok := odd[r]; ok {
			others.Go(func() { f(ctx, j.options(r)) })
			continue
		}
		wg.Go(func() {
			s, st, err := Run(ctx, own(r), j.options(r))
			stats[r], errs[r] = st, err
			if r == 0 {
				out = s
			}
		})
	}
	wg.Wait()
	cancel()
	others.Wait()
	return out, stats, errs
}

func small(rank int) *Summary {
	s := certificate.New(certificate.Predicate{Suite: "node", Results: []result.Result{{
		ID: "link", Title: "links", Verdict: result.Pass,
		Measured: &result.Measurement{Value: float64(100 + rank), Unit: "GB/s"},
	}}})
	return Summarize(rank, s)
}

func TestGather(t *testing.T) {
	for _, size := range []int{1, 2, 3, 9, 10, 73, 200} {
		for _, fanout := range []int{1, 2, 8} {
			if size > 10 && fanout == 1 {
				continue
			}
			j := newJob(t, size, fanout, 5*time.Minute) // on a busy machine nobody may call again
			got, stats, errs := j.run(t, small, nil)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			want := &Summary{}
			for _, r := range rand.Perm(size) {
				want.Merge(small(r))
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%d ranks, fan-out %d: %+v; want %+v", size, fanout, got, want)
			}
			if got.Verdict() != result.Pass || got.Checks["link"].Worst[0].Rank != 0 {
				t.Errorf("%d ranks, fan-out %d: verdict %s, worst %+v", size, fanout, got.Verdict(), got.Checks["link"].Worst)
			}
			for r, st := range stats {
				// Host, summary, taken and passed on each connection.
				if most := 4 * (fanout + 1); st.Messages > most || st.Level > int(math.Ceil(math.Log2(float64(size)+1))) && fanout > 1 {
					t.Errorf("%d ranks, fan-out %d: rank %d had %d messages, at level %d", size, fanout, r, st.Messages, st.Level)
				}
			}
		}
	}
}

// absent does nothing, and nobody listens.
func absent(_ context.Context, o Options) {
	if o.Listener != nil {
		o.Listener.Close()
	}
}

// deaf listens, and says nothing ever.
func deaf(ctx context.Context, o Options) { <-ctx.Done() }

// greets is a caller's handshake.
func greets(c net.Conn, o Options, to int) bool {
	_, err := protocol.Greet(c, o.Token, claim(o.Rank, to, o.Size))
	return err == nil
}

// says comes, and sends something else than a summary.
func says(k meet.Kind, p string) func(ctx context.Context, o Options) {
	return func(ctx context.Context, o Options) {
		absent(ctx, o)
		addr, _ := o.Peers(ctx, parent(o.Rank, o.Fanout))
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer c.Close()
		if greets(c, o, parent(o.Rank, o.Fanout)) {
			meet.WriteFrame(c, frameHost, []byte("elsewhere"))
			if k == 0 { // half of a frame
				c.Write([]byte{0, 0, 1, 0, byte(frameSummary), '{'})
				return
			}
			meet.WriteFrame(c, k, []byte(p))
			<-ctx.Done()
		}
	}
}

// swallows takes its children's summaries, and dies with them.
func swallows(ctx context.Context, o Options) {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { o.Listener.Close() })
	defer stop()
	for range o.Fanout {
		c, err := o.Listener.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer c.Close()
			if _, _, err := protocol.Examine(c, o.Token); err != nil {
				return
			}
			meet.Welcome(c)
			var err error
			for k := frameHost; k != frameSummary; {
				if k, _, err = meet.ReadFrame(c, maxSummary); err != nil {
					return
				}
			}
			meet.WriteFrame(c, frameTaken, nil)
		})
	}
	o.Listener.Close()
}

// sent is a part without checks, right or wrong.
func sent(covers [][2]int, ranks, passes int) string {
	p := packedSummary{Covers: covers, Summary: &Summary{Ranks: ranks, Verdicts: map[result.Verdict]int{result.Pass: passes}}}
	return string(p.encode())
}

func TestMissing(t *testing.T) {
	wrongToken := func(ctx context.Context, o Options) {
		o.Token = []byte("another one")
		Run(ctx, small(o.Rank), o)
	}
	for _, tt := range []struct {
		name string
		rank int
		f    func(ctx context.Context, o Options)
		want string
	}{
		{"a leaf that does not start", 37, absent, "rank 37 on node37: no answer within 3s"},
		{"an inner rank that does not start", 4, absent, "rank 4 on node4: no answer within 3s"},
		{"an inner rank that listens and is deaf", 4, deaf, "rank 4 on node4: no answer within 3s"},
		{"an inner rank that dies with what it has taken", 4, swallows, "rank 4 on node4: no answer within 3s"},
		{"a leaf that hangs", 37, says(frameHost, "elsewhere"), "rank 37 on elsewhere: it connected, and did not finish within 3s"},
		{"a leaf that dies in the middle", 37, says(0, ""), "rank 37 on elsewhere: it broke off before its result was here: the connection was closed"},
		{"nonsense", 37, says(frameSummary, "\x01\xff\xff"), "rank 37 on elsewhere: it sent nonsense: it ends too early"},
		{"another format", 37, says(frameSummary, "{]"), "it sent nonsense: a summary in format 123, and this program reads 1; run the same harness on all ranks"},
		{"another kind of nonsense", 37, says(99, ""), "rank 37 on elsewhere: it sent nonsense: a message of kind 99"},
		{"somebody else's ranks", 37, says(frameSummary, sent([][2]int{{36, 37}}, 2, 2)), "it sent nonsense: it covers rank 36, which is not under rank 37"},
		{"a count that is wrong", 37, says(frameSummary, sent([][2]int{{37, 37}}, 1, 9)), "it sent nonsense: 9 verdicts of 1 ranks"},
		{"a stranger", 37, wrongToken, "rank 37 on node37: no answer within 3s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const size = 60
			j := newJob(t, size, 4, 3*time.Second)
			got, _, errs := j.run(t, small, map[int]func(context.Context, Options){tt.rank: tt.f})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			if got.Ranks != size-1 || len(got.Missing) != 1 || !strings.Contains(got.Missing[0].String(), tt.want) {
				t.Errorf("%d ranks, missing %v; want %q", got.Ranks, got.Missing, tt.want)
			}
			if got.Verdict() != result.Error {
				t.Errorf("the verdict is %s", got.Verdict())
			}
		})
	}
}

// TestManyMissing: those that are there are counted, and all others named.
func TestManyMissing(t *testing.T) {
	const size = 150
	odd := map[int]func(context.Context, Options){}
	rng := rand.New(rand.NewPCG(8, 8))
	for _, r := range rng.Perm(size - 1)[:40] {
		odd[r+1] = []func(context.Context, Options){absent, deaf}[r%2]
	}
	j := newJob(t, size, 3, 6*time.Second)
	got, _, errs := j.run(t, small, odd)
	if err := errors.Join(errs...); err != nil {
		t.Logf("ranks that found nobody above in time: %v", err)
	}
	if got.Ranks+len(got.Missing) != size || got.Ranks < size/2 {
		t.Fatalf("%d ranks counted, %d missing", got.Ranks, len(got.Missing))
	}
	for r := range odd {
		if !slices.ContainsFunc(got.Missing, func(m Missing) bool { return m.Rank == r && m.Reason != "" }) {
			t.Errorf("rank %d is not named", r)
		}
	}
}

func TestDocuments(t *testing.T) {
	const size = 30
	j := newJob(t, size, 3, 20*time.Second)
	var mu sync.Mutex
	got := map[int]int{}
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			o := j.options(r)
			o.Document = document(t, r)
			o.Keep = func(rank int, b []byte) error {
				mu.Lock()
				defer mu.Unlock()
				s, err := certificate.Parse(b)
				if err == nil && s.Predicate.Node.Name == host(rank) {
					got[rank]++
				}
				return err
			}
			_, _, errs[r] = Run(context.Background(), summary(t, r), o)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil || len(got) != size {
		t.Errorf("%d documents of %d: %v", len(got), size, err)
	}
}

// TestDocumentWithoutAncestor: a document for which no rank above answered is an error.
func TestDocumentWithoutAncestor(t *testing.T) {
	o, err := Options{Rank: 1, Size: 3, Fanout: 1, Token: []byte("t"), Limit: time.Second, Listener: new(net.TCPListener), Peers: func(context.Context, int) (string, error) {
		return "", errors.New("rank 0 has no address")
	}}.check()
	if err != nil {
		t.Fatal(err)
	}
	g := &gathering{o: o, begun: time.Now(), upOpen: make(chan struct{})}
	w := &climb{g: g, next: 1}
	w.first(t.Context())
	if err := g.document([]byte("\x00\x00\x00\x02{}")); err == nil || err.Error() != "no rank above answers" {
		t.Errorf("a document is passed on: %v", err)
	}
}

func TestOptions(t *testing.T) {
	fine := func() Options {
		return Options{Size: 4, Rank: 3, Token: token, Peers: func(context.Context, int) (string, error) { return "", nil }}
	}
	for name, change := range map[string]func(o *Options){
		"size": func(o *Options) { o.Size = 0 }, "rank": func(o *Options) { o.Rank = 4 }, "token": func(o *Options) { o.Token = nil },
		"peers": func(o *Options) { o.Peers = nil }, "fan-out": func(o *Options) { o.Fanout = -1 }, "listener": func(o *Options) { o.Rank = 0 },
	} {
		o := fine()
		change(&o)
		if _, _, err := Run(context.Background(), small(3), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestWorstOfLatencies: of what should be low, the highest is the worst, whether it
// has a limit or not.
func TestWorstOfLatencies(t *testing.T) {
	sum := &Summary{}
	for rank, v := range []float64{800, 1200, 900} {
		st := certificate.New(certificate.Predicate{Suite: "node", Results: []result.Result{{ID: "bandwidth/host_latency", Verdict: result.Pass, Objects: []result.Object{
			{Name: "GPU 0", Verdict: result.Pass, Measured: &result.Measurement{Value: v, Unit: "ns"}},
		}}}})
		sum.Merge(Summarize(rank, st))
	}
	if w := sum.Checks["bandwidth/host_latency objects"].Worst; len(w) != 3 || w[0].Rank != 1 || w[2].Rank != 0 {
		t.Errorf("the worst are %+v; want rank 1 first", w)
	}
}
