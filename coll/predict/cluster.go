package predict

import (
	"bytes"
	"fmt"
	"io"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/predict/scale"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/platform"
)

// A Cluster is the predictions of collectives over all GPUs of nodes, and the cost of a run of the
// suite fabric there: the document of "harness predict --nodes", schema 1.
type Cluster struct {
	Schema        int                 `json:"schema"`
	Platform      string              `json:"platform"`
	Name          string              `json:"-"` // of the platform
	Nodes         int                 `json:"nodes"`
	GPUs          int                 `json:"gpus"`
	Domains       int                 `json:"nvlinkDomains"`
	GPUsPerDomain int                 `json:"gpusPerDomain"`
	Collectives   []ClusterCollective `json:"collectives"`
	Run           scale.Cost          `json:"run"` // of the suite fabric, without the transfers that it measures
	Figures       []Used              `json:"figures"`
}

// A ClusterCollective is the predictions of one collective.
type ClusterCollective struct {
	Collective string       `json:"collective"`
	Rows       []Prediction `json:"rows"`
}

// maxClusterNodes is far beyond any cluster.
const maxClusterNodes = 1 << 20

// ForCluster predicts collectives over all GPUs of j.Nodes nodes; it sets the other fields of the
// job itself, except for the algorithm.
func ForCluster(db *platform.DB, j Job, collectives []op.Collective, sizes []int64) (*Cluster, error) {
	p, err := db.Platform(j.Platform)
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	node := p.GPUsPerNode.Max()
	if node == 0 {
		return nil, exit.Usagef("%s: the database does not say how many GPUs a node has; give --gpus, too", j.Platform)
	}
	if j.Nodes > maxClusterNodes {
		return nil, exit.Usagef("--nodes: %d; at most %d can be predicted", j.Nodes, maxClusterNodes)
	}
	j.GPUs = j.Nodes * node
	d := &Cluster{Schema: 1, Platform: j.Platform, Name: p.Name, Nodes: j.Nodes, GPUs: j.GPUs, Run: scale.Of(j.Nodes)}
	seen := map[Used]bool{}
	for _, c := range collectives {
		j.Collective = c
		p, err := NewPredictor(db, j, DefaultFitted)
		if err != nil {
			return nil, exit.Usagef("%w", err)
		}
		rows, err := p.predictAll(sizes)
		if err != nil {
			return nil, err
		}
		d.Collectives = append(d.Collectives, ClusterCollective{c.Test(), rows})
		d.Domains, d.GPUsPerDomain = p.Domains()
		for _, u := range p.Figures() {
			if !seen[u] {
				seen[u] = true
				d.Figures = append(d.Figures, u)
			}
		}
	}
	return d, nil
}

// WriteText writes the predictions as a table, and what the run costs.
func (d *Cluster) WriteText(out io.Writer) error {
	var b bytes.Buffer
	domains, joined := "1 NVLink domain", ""
	if d.Domains != 1 {
		domains = fmt.Sprintf("%d NVLink domains", d.Domains)
	}
	if d.Domains > 1 {
		joined = ", joined by the network"
	}
	fmt.Fprintf(&b, "%s: %d nodes, %d GPUs: %s of %d%s (predicted, not measured)\n", d.Name, d.Nodes, d.GPUs, domains, d.GPUsPerDomain, joined)
	fmt.Fprintf(&b, "%-14s %14s %14s %10s %10s  %s\n", "collective", "bytes", "time us", "algbw GB/s", "busbw GB/s", "by")
	for _, c := range d.Collectives {
		for _, r := range c.Rows {
			fmt.Fprintf(&b, "%-14s %14d %14.1f %10.2f %10.2f  %s %s%s\n", c.Collective, r.Bytes, round(r.micros(), 3), round(gb(r.AlgBW), 4), round(gb(r.BusBW), 4), r.Algorithm, r.Protocol, r.extended(d.GPUs))
		}
	}
	boot, g, ct, h := d.Run.Bootstrap, d.Run.Gathering, d.Run.Certificate, d.Run.Hunt
	fmt.Fprintf(&b, "\na run of the suite fabric, one rank a node, besides the transfers that it measures (docs/scale.md):\n")
	fmt.Fprintf(&b, "  %-12s %d connections and %d messages at rank 0, at most %d ends of links in a tree of %d levels; %.1f s of processor time of all ranks\n",
		"bootstrap", boot.Connections, boot.Messages, boot.LinkEnds, boot.Levels, boot.Seconds)
	fmt.Fprintf(&b, "  %-12s %d levels, %d messages, %s in all; at most %d messages and %s of a rank; %.1f s of processor time of all ranks\n",
		"gathering", g.Levels, g.Messages, amount(g.Bytes), g.MessagesOfRank, amount(g.BytesOfRank), g.Seconds)
	where := "beside it, by their digests"
	if ct.Bytes > ct.Embedded {
		where = "inside"
	}
	fmt.Fprintf(&b, "  %-12s %s; the nodes' own are %s, %s\n", "certificate", amount(ct.Bytes), amount(ct.Embedded), where)
	fmt.Fprintf(&b, "  %-12s about %.0f rounds where nothing is slow, %.0f to name a node (at most %d): %.0f measurements, %.0f s at %d s a round\n",
		"hunt", h.Rounds, h.RoundsFault, h.Bound, h.Measurements, h.Seconds, scale.RoundSeconds)
	writeFigures(&b, d.Figures)
	_, err := b.WriteTo(out)
	return err
}

// amount formats a number of bytes.
func amount(bytes float64) string {
	unit := "kB"
	bytes /= 1e3
	for _, next := range []string{"MB", "GB", "TB"} {
		if bytes >= 1e3 {
			bytes, unit = bytes/1e3, next
		}
	}
	return fmt.Sprintf("%.3g %s", bytes, unit)
}
