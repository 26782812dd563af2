package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// decimals formats a number as perftest prints it.
func decimals(v float64, digits int) json.RawMessage {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return json.RawMessage("null")
	}
	return fmt.Appendf(nil, "%.*f", digits, v)
}

// testInfo is perftest's test_info, in its order. Optional fields are absent in the same cases as
// in perftest.
type testInfo struct {
	Test       string `json:"test"`
	DualPort   string `json:"Dual_port"`
	Device     string `json:"Device"`
	QPs        int    `json:"Number_of_qps"`
	Transport  string `json:"Transport_type"`
	Connection string `json:"Connection_type"`
	SRQ        string `json:"Using_SRQ"`
	Relaxed    string `json:"PCIe_relax_order"`
	PostSend   string `json:"ibv_wr_API"`
	TxDepth    *int   `json:"TX_depth,omitempty"`
	PostList   *int   `json:"Post_List,omitempty"`
	RecvList   *int   `json:"Recv_Post_List,omitempty"`
	RxDepth    *int   `json:"RX_depth,omitempty"`
	CQMod      *int   `json:"CQ_Moderation,omitempty"`
	MTU        int    `json:"Mtu"`
	Link       string `json:"Link_type"`
	GIDIndex   *int   `json:"GID_index,omitempty"`
	Inline     *int   `json:"Max_inline_data,omitempty"`
	OutReads   *int   `json:"Outstand_reads,omitempty"`
	CM         string `json:"rdma_cm_QPs"`
	Method     string `json:"Data_ex_method"`
	TOS        *int   `json:"TOS,omitempty"`
}

// when is a field that is present only under a condition.
func when(there bool, v int) *int {
	if !there {
		return nil
	}
	return &v
}

func (c *Config) testInfo(i Info) testInfo {
	sends, reads := c.Sends(), c.Operation == Read || c.Operation == Atomic
	return testInfo{
		Test: strings.ReplaceAll(strings.Join(c.title(), "_"), " ", "_") + "_Test", DualPort: "OFF", Device: i.Device, QPs: c.QPs,
		Transport: i.Transport, Connection: c.Connection.String(), SRQ: onOff(c.SRQ), Relaxed: onOff(i.Relaxed), PostSend: "OFF",
		TxDepth: when(sends, i.TxDepth), PostList: when(c.PostList > 1, c.PostList),
		RecvList: when(c.RecvList > 1, c.RecvList),
		RxDepth:  when(c.Receives() && (!sends || c.Bidirectional || c.Measure == Latency), i.RxDepth),
		CQMod:    when(c.Measure == Bandwidth, i.CQModeration), MTU: i.MTU, Link: i.Link, GIDIndex: when(i.GIDIndex >= 0, i.GIDIndex),
		Inline: when(!reads && sends, i.Inline), OutReads: when(reads, i.OutReads), CM: onOff(c.CM), Method: c.exchange(), TOS: when(c.TOS >= 0, c.TOS),
	}
}

// An object is a JSON object with its keys in order.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// results are perftest's objects for a row: one, or one per direction with --report-both.
func (c *Config) results(r Row) []object {
	switch {
	case c.ReportBoth && r.Local != nil && r.Remote != nil:
		return []object{append(c.bwObject(r.Local), member{"direction", "local"}), append(c.bwObject(r.Remote), member{"direction", "remote"})}
	case r.Bandwidth != nil:
		return []object{c.bwObject(r.Bandwidth)}
	case r.Latency != nil:
		return []object{c.latObject(r.Latency)}
	}
	return nil
}

func (c *Config) bwObject(r *BandwidthResult) object {
	u, digits := unit(c.Gbits), 2
	if c.Gbits && r.Average/u < smallGbits {
		digits = 6
	}
	switch c.Format {
	case "bandwidth":
		return object{{"bw_avg", decimals(r.Average/u, 6)}}
	case "message_rate":
		return object{{"msgRate_avg", decimals(r.Rate/million, 6)}}
	}
	o := object{
		{"MsgSize", r.Bytes}, {"n_iterations", r.Iterations}, {"BW_peak", decimals(r.Peak/u, digits)},
		{"BW_average", decimals(r.Average/u, digits)}, {"MsgRate", decimals(r.Rate/million, 6)},
	}
	if c.showsCPU() {
		o = append(o, member{"CPU_util", decimals(r.CPU, 2)})
	}
	return o
}

func (c *Config) latObject(r *LatencyResult) object {
	us := func(ns float64) json.RawMessage { return decimals(c.inUnit(r, ns), 2) }
	if c.Format == "latency" {
		return object{{"avg_lat", decimals(c.inUnit(r, r.Average), 6)}}
	}
	o := object{{"MsgSize", r.Bytes}, {"n_iterations", r.Iterations}}
	if c.Duration > 0 {
		return append(o, member{"t_avg", us(r.Average)}, member{"tps_average", decimals(r.TPS, 2)})
	}
	return append(o, member{"t_min", us(r.Min)}, member{"t_max", us(r.Max)}, member{"t_typical", us(r.Typical)}, member{"t_avg", us(r.Average)},
		member{"t_stdev", us(r.Stdev)}, member{"percentile_99", us(r.P99)}, member{"percentile_99.9", us(r.P999)})
}

// PerftestJSON is the document of --out_json: as perftest's, but always valid JSON, and with all
// sizes. A single result is an object, as in perftest; several are an array of objects.
func (c *Config) PerftestJSON(o *Outcome) ([]byte, error) {
	all := []object{}
	for _, r := range o.Rows {
		all = append(all, c.results(r)...)
	}
	var results any = all
	if len(all) == 1 {
		results = all[0]
	}
	return indented(object{{"test_info", c.testInfo(o.Info)}, {"results", results}})
}

func indented(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return append(b, '\n'), err
}
