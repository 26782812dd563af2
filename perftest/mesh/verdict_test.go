package mesh

import (
	compare "cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/result"
)

// grid makes a report of hosts with ports each, by a pattern, of what value says.
// Values in GB/s, or in µs with latency; 0 is an error.
func grid(hosts, ports int, p Pattern, latency bool, value func(from, to int) float64) *Report {
	r := &Report{Tool: "write_bw", Pattern: p, Bytes: 65536, QPs: 1, Samples: 1, Latency: latency, Findings: []Finding{}}
	scale := 1e9
	if latency {
		r.Tool, scale = "write_lat", 1e3
	}
	var of []int
	for h := range hosts {
		r.Hosts = append(r.Hosts, fmt.Sprintf("n%d", h))
		for k := range ports {
			of = append(of, h)
			l := link{State: "ACTIVE", Phys: "LinkUp", Gbit: 400, Lanes: 4, Speed: "NDR"}
			r.Ports = append(r.Ports, Port{Host: h, Rank: h, Device: fmt.Sprintf("mlx5_%d", k), Port: 1, Rail: k, LinkType: "InfiniBand", Hardware: true, Before: l, After: l, Counters: map[string]uint64{}})
		}
	}
	rounds, err := Schedule(p, of)
	if err != nil {
		panic(err)
	}
	r.Rounds = len(rounds)
	for i, round := range rounds {
		for _, s := range steps([][]Pair{round}, false, false) {
			for _, f := range s {
				c := Cell{From: f.From, To: f.To, Round: i, Samples: []float64{}}
				if v := value(f.From, f.To); v > 0 {
					c.Samples = append(c.Samples, v*scale)
				} else {
					c.Error = "QP 1: status 12"
				}
				r.Cells = append(r.Cells, c)
			}
		}
	}
	return r
}

// jitter is what healthy links differ by: 1 %.
func jitter(from, to int, v float64) float64 { return v * (1 + float64((from*7+to*13)%11-5)/500) }

// TestBlame: injected faults, and whom the verdict names.
func TestBlame(t *testing.T) {
	host := func(ports int) func(p int) int { return func(p int) int { return p / ports } }
	for _, tt := range []struct {
		name         string
		hosts, ports int
		pattern      Pattern
		slow         func(from, to int) bool
		want         []string // beginnings of findings
	}{
		{"healthy", 4, 2, AllPairs, func(int, int) bool { return false }, nil},
		{"healthy ring", 5, 2, Ring, func(int, int) bool { return false }, nil},
		{"port", 4, 2, AllPairs, func(f, to int) bool { return f == 3 || to == 3 }, []string{"port fail n1 mlx5_1, with every other one: 30.00 GB/s is 60 % of the port's rate"}},
		{"port of three", 3, 1, AllPairs, func(f, to int) bool { return f == 2 || to == 2 }, []string{"port fail n2 mlx5_0, with every other one: "}},
		{"two ports", 4, 2, AllPairs, func(f, to int) bool { return f == 3 || to == 3 || f == 6 || to == 6 },
			[]string{"port fail n1 mlx5_1, with every other one: ", "port fail n3 mlx5_0, with every other one: "}},
		{"port sends", 4, 2, AllPairs, func(f, _ int) bool { return f == 3 }, []string{"port fail n1 mlx5_1, sending to every other one: "}},
		{"port receives", 4, 2, AllPairs, func(_, to int) bool { return to == 0 }, []string{"port fail n0 mlx5_0, receiving from every other one: "}},
		{"port on rail", 4, 2, Rail, func(f, to int) bool { return f == 3 || to == 3 }, []string{"port fail n1 mlx5_1, with every other one: "}},
		{"host", 4, 2, AllPairs, func(f, to int) bool { return host(2)(f) == 2 || host(2)(to) == 2 }, []string{"host fail host n2, all ports (2): "}},
		{"host of three", 3, 8, AllPairs, func(f, to int) bool { return host(8)(f) == 1 || host(8)(to) == 1 }, []string{"host fail host n1, all ports (8): "}},
		{"host on rail", 3, 4, Rail, func(f, to int) bool { return host(4)(f) == 1 || host(4)(to) == 1 }, []string{"host fail host n1, all ports (4): "}},
		{"host sends", 4, 2, AllPairs, func(f, _ int) bool { return host(2)(f) == 0 }, []string{"host fail host n0, all ports, sending (2): "}},
		{"path", 4, 2, AllPairs, func(f, to int) bool { return f == 1 && to == 4 || f == 4 && to == 1 }, []string{"path fail n0 mlx5_1 ↔ n2 mlx5_0 (this path alone): "}},
		{"path one way", 4, 2, AllPairs, func(f, to int) bool { return f == 4 && to == 1 }, []string{"path fail n2 mlx5_0 → n0 mlx5_1 (this path alone): "}},
		{"port and path", 4, 2, AllPairs, func(f, to int) bool { return f == 3 || to == 3 || f == 0 && to == 7 },
			[]string{"port fail n1 mlx5_1, with every other one: ", "path fail n0 mlx5_0 → n3 mlx5_1 (this path alone): "}},
		{"two ports only", 2, 1, AllPairs, func(int, int) bool { return true }, []string{"path fail n0 mlx5_0 ↔ n1 mlx5_0 (the path, or either port): "}},
		{"bisection", 4, 1, Bisection, func(f, to int) bool { return f == 1 || to == 1 }, []string{"path fail n1 mlx5_0 ↔ n3 mlx5_0 (the path, or either port): "}},
		{"all", 4, 2, AllPairs, func(int, int) bool { return true }, []string{"all fail all 8 ports, with one another: "}},
		{"one host alone", 1, 4, AllPairs, func(f, to int) bool { return f == 2 || to == 2 }, []string{"port fail n0 mlx5_2, with every other one: "}},
	} {
		for _, kind := range []string{"bandwidth", "latency", "error"} {
			if kind == "latency" && (tt.name == "all" || tt.name == "two ports only") {
				continue // nothing to hold them against
			}
			r := grid(tt.hosts, tt.ports, tt.pattern, kind == "latency", func(f, to int) float64 {
				switch slow := tt.slow(f, to); {
				case kind == "latency" && slow:
					return 9
				case kind == "latency":
					return jitter(f, to, 2)
				case slow && kind == "error":
					return 0
				case slow:
					return 30
				}
				return jitter(f, to, 48)
			})
			r.finish()
			var got []string
			for _, f := range r.Findings {
				got = append(got, fmt.Sprintf("%s %s %s", f.Kind, f.Verdict, f.Text))
			}
			same := slices.EqualFunc(got, tt.want, func(g, w string) bool {
				w, quoted, _ := strings.Cut(w, ": ")
				return strings.HasPrefix(g, w+": ") && (kind != "bandwidth" || strings.HasPrefix(g, w+": "+quoted))
			})
			want := result.Fail
			if len(tt.want) == 0 {
				want = result.Pass
			}
			if !same || r.worst() != want {
				t.Errorf("%s, %s: %s\n%s\nwant\n%s", tt.name, kind, r.worst(), strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		}
	}
}

// slowBlame is blame as it is defined: each suspect in turn, held against all
// cells.
func slowBlame(r *Report) (out []Finding) {
	m := r.matrix()
	var left []int
	for i := range r.Cells {
		if r.Cells[i].Verdict.Bad() {
			left = append(left, i)
		}
	}
	switch {
	case len(left) == 0:
		return nil
	case len(left) == len(r.Cells) && len(r.Ports) > 2 && r.Pattern != Self:
		return []Finding{r.everyone(m, left)}
	}
	for _, class := range r.suspects() {
		of := func(s *suspect, c *Cell) bool {
			return s.Sends && slices.Contains(s.Members, c.From) || s.Receives && slices.Contains(s.Members, c.To)
		}
		mean := map[string]float64{}
		class = slices.DeleteFunc(class, func(s suspect) bool {
			good, sum, n := false, 0.0, 0
			for i := range r.Cells {
				if c := &r.Cells[i]; of(&s, c) {
					good, sum, n = good || !c.Verdict.Bad(), sum+c.Value, n+1
				}
			}
			mean[s.what] = sum / float64(n)
			return good || n == 0
		})
		slices.SortStableFunc(class, func(a, b suspect) int { return compare.Compare(mean[a.what], mean[b.what]) })
		for _, s := range class {
			var mine, rest []int
			others := map[int]bool{}
			for _, i := range left {
				c := &r.Cells[i]
				if !of(&s, c) {
					rest = append(rest, i)
					continue
				}
				mine = append(mine, i)
				if s.kind == "host" {
					others[r.Ports[c.From].Host+r.Ports[c.To].Host-s.hosts[0]] = true
				} else {
					others[c.From+c.To-s.Members[0]] = true
				}
			}
			if len(others) > 1 {
				out, left = append(out, r.find(m, s.kind, s.what, s.Members, s.hosts, mine)), rest
			}
		}
	}
	for len(left) > 0 {
		c, pair, arrow := &r.Cells[left[0]], left[:1], "→"
		if i := slices.IndexFunc(left, func(d int) bool { d2 := &r.Cells[d]; return d2 != c && d2.From == c.To && d2.To == c.From }); i > 0 {
			pair, arrow, left = []int{left[0], left[i]}, "↔", slices.Delete(slices.Clone(left), i, i+1)
		}
		left = left[1:]
		third := func(port, other int) bool {
			return slices.ContainsFunc(r.Cells, func(d Cell) bool {
				return (d.From == port && d.To != other || d.To == port && d.From != other) && d.Verdict == result.Pass
			})
		}
		what := " (this path alone)"
		if !third(c.From, c.To) || !third(c.To, c.From) {
			what = " (the path, or either port)"
		}
		out = append(out, r.find(m, "path", r.Name(c.From)+" "+arrow+" "+r.Name(c.To)+what, []int{c.From, c.To}, nil, pair))
	}
	return out
}

// broken is a mesh with faults at random: of hosts, of ports in one direction or
// both, and of paths.
func broken(seed uint64, hosts, ports int, p Pattern, part float64) *Report {
	rnd := rand.New(rand.NewPCG(seed, 1))
	pick := func(n int) map[int]bool {
		m := map[int]bool{}
		for i := range n {
			if rnd.Float64() < part {
				m[i] = true
			}
		}
		return m
	}
	n := hosts * ports
	host, out, in, paths := pick(hosts), pick(n), pick(n), part*rnd.Float64()
	return grid(hosts, ports, p, false, func(from, to int) float64 {
		switch slow := host[from/ports] || host[to/ports] || out[from] || in[to]; {
		case slow && rnd.IntN(20) > 0:
			return 20 + 20*rnd.Float64()
		case slow || rnd.Float64() < paths:
			return float64(44 * rnd.IntN(2))
		}
		return jitter(from, to, 48)
	})
}

// TestBlameIsItsDefinition compares with slowBlame, on meshes with faults at
// random.
func TestBlameIsItsDefinition(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(600) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		p := Patterns()[rnd.IntN(len(Patterns()))]
		hosts, ports, part := 1+rnd.IntN(6), 1+rnd.IntN(4), []float64{0.02, 0.1, 0.3, 0.6}[rnd.IntN(4)]
		r := broken(seed, hosts, ports, p, part)
		r.finish()
		got := r.blame()
		if d := cmp.Diff(slowBlame(r), got); d != "" {
			t.Fatalf("seed %d, %s of %d hosts with %d ports (-definition +blame):\n%s", seed, p, hosts, ports, d)
		}
		for _, f := range got {
			kinds[f.Kind]++
		}
	}
	for _, k := range []string{"all", "host", "port", "path"} {
		if kinds[k] < 20 {
			t.Errorf("only %d findings of kind %s: %v", kinds[k], k, kinds)
		}
	}
}

// BenchmarkBlame has 4,096 ports, of 512 hosts, a tenth of which are bad.
func BenchmarkBlame(b *testing.B) {
	r := broken(1, 512, 8, Rail, 0.1)
	r.finish()
	for b.Loop() {
		r.blame()
	}
	b.ReportMetric(float64(len(r.Cells)), "cells")
}

// TestThresholds: a cell's verdict by how slow it is.
func TestThresholds(t *testing.T) {
	for _, tt := range []struct {
		all, one float64 // GB/s; the port's rate is 50
		soft     bool
		want     result.Verdict
	}{
		{48, 47, false, result.Pass}, {48, 44.5, false, result.Warn}, {48, 43, false, result.Warn}, {48, 38, false, result.Fail}, {48, 37, false, result.Fail},
		{43, 43, false, result.Warn}, {37, 37, false, result.Fail}, {37, 37, true, result.Pass}, {37, 34, true, result.Warn}, {37, 29, true, result.Fail},
	} {
		r := grid(4, 1, AllPairs, false, func(f, to int) float64 {
			if f == 0 && to == 1 {
				return tt.one
			}
			return tt.all
		})
		for i := range r.Ports {
			r.Ports[i].Hardware = !tt.soft
		}
		r.finish()
		if c := r.Cell(0, 1); c.Verdict != tt.want {
			t.Errorf("%g among %g: %s (%s); want %s", tt.one, tt.all, c.Verdict, c.Reason, tt.want)
		}
	}
}

// TestMixedRates: ports of different rates are held against their equals.
func TestMixedRates(t *testing.T) {
	r := grid(8, 1, AllPairs, false, func(f, to int) float64 {
		if f < 4 || to < 4 {
			return 24
		}
		return 48
	})
	for i := range 4 {
		r.Ports[i].Device, r.Ports[i].Before.Gbit, r.Ports[i].After.Gbit = "mlx5_9", 200, 200
	}
	r.finish()
	if r.worst() != result.Pass {
		t.Errorf("%+v", r.Findings)
	}
}

// TestLinks: what a link says of itself.
func TestLinks(t *testing.T) {
	for _, tt := range []struct {
		change func(p *Port)
		want   string
	}{
		{func(p *Port) {
			p.Before.Gbit, p.Before.Speed, p.After = 200, "HDR", p.Before
			p.After.Gbit, p.After.Speed = 200, "HDR"
		}, "fail n1 mlx5_0: the link is at 200 Gb/s (4X HDR); 3 like it are at 400 Gb/s (4X NDR)"},
		{func(p *Port) { p.After.State, p.After.Phys = "DOWN", "Polling" }, "fail n1 mlx5_0: the link was ACTIVE before and is DOWN/Polling now"},
		{func(p *Port) { p.After.Lanes, p.After.Gbit = 1, 100 }, "fail n1 mlx5_0: the link was at 400 Gb/s (4X NDR) before and is at 100 Gb/s (1X NDR) now"},
		{func(p *Port) { p.Expected = 800 }, "fail n1 mlx5_0: the link is at 400 Gb/s (4X NDR); 800 Gb/s are expected"},
		{func(p *Port) { p.Counters["link_downed"] = 2 }, "fail n1 mlx5_0: link_downed +2 (the link went down)"},
		{func(p *Port) { p.Counters["symbol_error"], p.Counters["out_of_sequence"] = 2, 1 },
			"warn n1 mlx5_0: out_of_sequence +1 (packets arrived out of order: loss, or adaptive routing), symbol_error +2 (bit errors on the link: cable or transceiver)"},
		{func(p *Port) { p.Counters["rx_prio3_pause"] = 2 }, "pass n1 mlx5_0: rx_prio3_pause +2 (pause frames (PFC))"},
		{func(p *Port) { p.Counters["np_cnp_sent"] = 7 }, "pass n1 mlx5_0: np_cnp_sent +7 (congestion notifications sent: marked packets arrived here)"},
	} {
		r := grid(4, 1, AllPairs, true, func(int, int) float64 { return 2 })
		tt.change(&r.Ports[1])
		r.finish()
		if len(r.Findings) != 1 || string(r.Findings[0].Verdict)+" "+r.Findings[0].Text != tt.want {
			t.Errorf("%+v\nwant %s", r.Findings, tt.want)
		}
	}
}

func TestIncreases(t *testing.T) {
	got := increases(map[string]uint64{"symbol_error": 5, "link_downed": 9, "port_xmit_data": 1, "out_of_sequence": 4}, map[string]uint64{
		"symbol_error": 7, "link_downed": 2, "port_xmit_data": 9, "out_of_sequence": 4, "packet_seq_err": 3,
	})
	if fmt.Sprint(got) != "map[link_downed:2 symbol_error:2]" {
		t.Errorf("%v", got)
	}
}

// sick is a mesh with something of everything.
func sick(latency bool) *Report {
	r := grid(3, 2, AllPairs, latency, func(f, to int) float64 {
		switch {
		case latency:
			return jitter(f, to, 2)
		case f == 3 || to == 3:
			return 31.5
		case f == 0 && to == 5:
			return 0
		}
		return jitter(f, to, 48)
	})
	r.Ports[3].Counters = map[string]uint64{"symbol_error": 12, "rp_cnp_handled": 400}
	r.Ports[5].Port = 2
	r.Cells[0].FromCounters = map[string]uint64{"rp_cnp_handled": 400}
	r.finish()
	return r
}

// TestOutput: text, JSON and HTML of the same reports.
func TestOutput(t *testing.T) {
	for name, r := range map[string]*Report{"sick": sick(false), "latency": sick(true), "wide": grid(9, 4, AllPairs, false, func(f, to int) float64 { return jitter(f, to, 48) })} {
		if name == "wide" {
			r.finish()
		}
		var text, html strings.Builder
		if err := r.WriteText(&text, View{Gbits: name == "wide"}); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name+".txt", text.String())
		if name == "wide" {
			continue
		}
		b, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name+".json", string(b)+"\n")
		if err := r.WriteHTML(&html, View{}); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name+".html", html.String())
		for _, outside := range []string{"<script", "src=", "href=", "@import"} {
			if strings.Contains(html.String(), outside) {
				t.Errorf("the page has %s", outside)
			}
		}
	}
}

// TestResult: the result has an object for each cell, in the units of certificates.
func TestResult(t *testing.T) {
	down := func(from, to int) float64 {
		if from == 1 {
			return 0
		}
		return 48
	}
	r := grid(2, 1, AllPairs, false, down)
	r.finish()
	res := r.Results[0]
	if err := res.Validate(); err != nil {
		t.Error(err)
	}
	good, bad := res.Objects[0], res.Objects[1]
	if res.Verdict != result.Fail || res.Remedy == "" || good.Name != "n0 mlx5_0/1" || good.Peer != "n1 mlx5_0/1" || good.Measured.Value != 384 || good.Measured.Expected != 400 || bad.Verdict != result.Error {
		t.Errorf("%+v", res)
	}
	r = grid(3, 1, AllPairs, true, func(from, to int) float64 { return 2 })
	r.finish()
	res = r.Results[0]
	if err := res.Validate(); err != nil || res.Verdict != result.Pass || res.Measured.Value != 2 || res.Measured.Unit != "us" || res.Reason != "2 us, all 6" {
		t.Errorf("%v, %+v", err, res)
	}
}
