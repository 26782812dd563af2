package probe

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// schema is the version of Document's layout. New fields do not change it; changed or removed
// fields do.
const schema = 1

// A reportDocument is the output of --output json. Its numbers are in base units: bytes, bytes per
// second, messages per second, nanoseconds.
type reportDocument struct {
	Schema      int                `json:"schema"`
	Tool        string             `json:"tool"` // "write_bw"
	Role        string             `json:"role"` // "client" or "server"
	Passed      bool               `json:"passed"`
	Failure     string             `json:"failure,omitempty"` // the limit that was not reached
	Peer        string             `json:"peer,omitempty"`    // address of the control connection
	PeerVersion string             `json:"peer_version,omitempty"`
	Device      string             `json:"device"`
	IBPort      int                `json:"ib_port"`
	Transport   string             `json:"transport"`
	Link        string             `json:"link"`
	GIDIndex    *int               `json:"gid_index,omitempty"`
	MTU         int                `json:"mtu_bytes"`
	Connection  string             `json:"connection"`
	QPs         int                `json:"qps"`
	Both        bool               `json:"bidirectional"`
	TxDepth     int                `json:"tx_depth"`
	RxDepth     int                `json:"rx_depth"`
	CQMod       int                `json:"cq_moderation"`
	PostList    int                `json:"post_list"`
	Inline      int                `json:"inline_bytes"`
	OutReads    int                `json:"outstanding_reads,omitempty"`
	Relaxed     bool               `json:"relaxed_ordering"`
	GPU         string             `json:"gpu,omitempty"`
	Local       []documentPair     `json:"local"`
	Remote      []documentPair     `json:"remote"`
	Bandwidth   []documentBW       `json:"bandwidth,omitempty"`
	Latency     []documentLat      `json:"latency,omitempty"`
	Counters    []map[string]int64 `json:"counters,omitempty"` // increases of the counters, by line
}

// A documentPair is a queue pair's address.
type documentPair struct {
	LID  uint16 `json:"lid"`
	QPN  uint32 `json:"qpn"`
	PSN  uint32 `json:"psn"`
	RKey uint32 `json:"rkey"`
	Addr string `json:"vaddr"`         // hex: JSON numbers lose digits
	GID  string `json:"gid,omitempty"` // eight groups of four hex digits
}

// A documentBW is a line of bandwidth. Values that were not measured are absent.
type documentBW struct {
	Bytes      uint64      `json:"bytes"`
	Iterations uint64      `json:"iterations"`
	Peak       *float64    `json:"peak_bytes_per_second,omitempty"`
	Average    float64     `json:"average_bytes_per_second"`
	Rate       float64     `json:"messages_per_second"`
	CPU        *float64    `json:"cpu_percent,omitempty"`
	Local      *documentBW `json:"local,omitempty"` // with both directions
	Remote     *documentBW `json:"remote,omitempty"`
}

// A documentLat is a line of latencies. Percentiles are of all samples, by name ("99.9"); the other
// fields are as in perftest, without the two largest samples.
type documentLat struct {
	Bytes       uint64             `json:"bytes"`
	Iterations  uint64             `json:"iterations"`
	Min         *float64           `json:"min_ns,omitempty"`
	Max         *float64           `json:"max_ns,omitempty"`
	Typical     *float64           `json:"typical_ns,omitempty"`
	Average     float64            `json:"average_ns"`
	Stdev       *float64           `json:"stdev_ns,omitempty"`
	P99         *float64           `json:"p99_ns,omitempty"`
	P999        *float64           `json:"p999_ns,omitempty"`
	TPS         *float64           `json:"transactions_per_second,omitempty"`
	Percentiles map[string]float64 `json:"percentiles_ns,omitempty"`
	Histogram   [][3]float64       `json:"histogram,omitempty"` // from ns, to ns, count
}

func documentQP(a wire.Address) documentPair {
	d := documentPair{LID: a.LID, QPN: a.QPN, PSN: a.PSN, RKey: a.RKey, Addr: fmt.Sprintf("%#x", a.VAddr)}
	if a.HasGID {
		d.GID = netip.AddrFrom16(a.GID).StringExpanded()
	}
	return d
}

// Document makes the document of a run. failure is the reason why limits were not reached, or nil.
func (c *Config) Document(o *Outcome, failure error) reportDocument {
	i := o.Info
	d := reportDocument{
		Schema: schema, Tool: c.Tool(), Role: c.Role().String(), Passed: failure == nil, Peer: i.Peer, PeerVersion: i.PeerVersion,
		Device: i.Device, IBPort: c.IBPort, Transport: i.Transport, Link: i.Link, GIDIndex: when(i.GIDIndex >= 0, i.GIDIndex), MTU: i.MTU,
		Connection: c.Connection.String(), QPs: c.QPs, Both: c.Bidirectional, TxDepth: i.TxDepth, RxDepth: i.RxDepth, CQMod: i.CQModeration,
		PostList: c.PostList, Inline: i.Inline, OutReads: i.OutReads, Relaxed: i.Relaxed, GPU: c.gpu(), Local: []documentPair{}, Remote: []documentPair{},
	}
	if failure != nil {
		d.Failure = failure.Error()
	}
	for _, a := range i.Local {
		d.Local = append(d.Local, documentQP(a))
	}
	for _, a := range i.Remote {
		d.Remote = append(d.Remote, documentQP(a))
	}
	for _, r := range o.Rows {
		d.row(c, r)
	}
	return d
}

// gpu is the name of the GPU with the data.
func (c *Config) gpu() string {
	if c.GPU >= 0 {
		return fmt.Sprint(c.GPU)
	}
	return c.GPUBusID
}

func (d *reportDocument) row(c *Config, r Row) {
	if r.Bandwidth != nil {
		b := c.documentBW(r.Bandwidth)
		if r.Local != nil && r.Remote != nil {
			local, remote := c.documentBW(r.Local), c.documentBW(r.Remote)
			b.Local, b.Remote = &local, &remote
		}
		d.Bandwidth = append(d.Bandwidth, b)
	}
	if r.Latency != nil {
		d.Latency = append(d.Latency, c.documentLat(r.Latency))
	}
	if len(r.Counters) > 0 {
		change := map[string]int64{}
		for name, v := range r.Counters {
			change[name] = int64(v.After - v.Before)
		}
		d.Counters = append(d.Counters, change)
	}
}

// ifPresent is a field that is absent if there was no measurement.
func ifPresent(there bool, v float64) *float64 {
	if !there || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func (c *Config) documentBW(r *BandwidthResult) documentBW {
	return documentBW{
		Bytes: r.Bytes, Iterations: r.Iterations, Peak: ifPresent(r.Peak > 0, r.Peak), Average: r.Average, Rate: r.Rate, CPU: ifPresent(c.showsCPU(), r.CPU),
	}
}

func (c *Config) documentLat(r *LatencyResult) documentLat {
	detail := !r.Timed || r.Histogram != nil && r.Histogram.Count() > 0
	d := documentLat{
		Bytes: r.Bytes, Iterations: r.Iterations, Average: r.Average, TPS: ifPresent(r.Timed, r.TPS),
		Min: ifPresent(detail, r.Min), Max: ifPresent(detail, r.Max), Typical: ifPresent(detail, r.Typical), Stdev: ifPresent(detail, r.Stdev), P99: ifPresent(detail, r.P99), P999: ifPresent(detail, r.P999),
	}
	if r.Histogram == nil || r.Histogram.Count() == 0 {
		return d
	}
	d.Percentiles = map[string]float64{}
	for _, p := range percentiles {
		d.Percentiles[p.name] = r.Quantile(p.q)
	}
	for _, k := range r.Histogram.Buckets(max(1, r.RoundTrips)) {
		d.Histogram = append(d.Histogram, [3]float64{k.From, k.To, float64(k.Count)})
	}
	return d
}

// DocumentJSON is the Document as JSON text.
func (c *Config) DocumentJSON(o *Outcome, failure error) ([]byte, error) {
	return indented(c.Document(o, failure))
}
