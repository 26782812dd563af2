package main

import (
	"fmt"
	"io"

	"github.com/assay-hpc/assay/coll/predict"
	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/scale"
	"github.com/assay-hpc/assay/internal/exit"
)

// clusterSizes are the default sizes for a whole cluster.
const clusterSizes = "1M,16M,128M,1G,8G,16G"

// The document of harness predict --nodes --format json, schema 1.
type (
	clusterDoc struct {
		Schema        int                 `json:"schema"`
		Platform      string              `json:"platform"`
		Nodes         int                 `json:"nodes"`
		GPUs          int                 `json:"gpus"`
		Domains       int                 `json:"nvlinkDomains"`
		GPUsPerDomain int                 `json:"gpusPerDomain"`
		Collectives   []clusterCollective `json:"collectives"`
		Run           scale.Cost          `json:"run"` // of the suite fabric, without the transfers that it measures
		Figures       []predict.Used      `json:"figures"`
	}
	clusterCollective struct {
		Collective string         `json:"collective"`
		Rows       []predictedRow `json:"rows"`
	}
)

// cluster predicts collectives over all GPUs of nodes, and the cost of a run of the
// suite fabric there.
func (o *predictOptions) cluster(out io.Writer, db *platform.DB) error {
	p, err := db.Platform(o.platform)
	if err != nil {
		return exit.Usagef("%w", err)
	}
	node := p.GPUsPerNode.Max()
	if node == 0 {
		return exit.Usagef("%s: the data base does not say how many GPUs a node has; give --gpus, too", o.platform)
	}
	if o.nodes > maxClusterNodes {
		return exit.Usagef("--nodes: %d; at most %d can be predicted", o.nodes, maxClusterNodes)
	}
	doc := clusterDoc{Schema: 1, Platform: o.platform, Nodes: o.nodes, GPUs: o.nodes * node, Run: scale.Of(o.nodes)}
	names := []string{o.collective}
	if !o.collectiveSet {
		names = predict.Collectives()
	}
	seen := map[predict.Used]bool{}
	for _, name := range names {
		c, _ := predict.CollectiveOf(name)
		p, err := predict.NewPredictor(db, predict.Job{Platform: o.platform, GPUs: doc.GPUs, Nodes: o.nodes, Collective: c, Algorithm: o.algo}, predict.DefaultFitted)
		if err != nil {
			return exit.Usagef("%w", err)
		}
		rows, err := o.predictAll(p)
		if err != nil {
			return err
		}
		doc.Collectives = append(doc.Collectives, clusterCollective{name, predictedRows(rows)})
		doc.Domains, doc.GPUsPerDomain = p.Domains()
		for _, u := range p.Figures() {
			if !seen[u] {
				seen[u] = true
				doc.Figures = append(doc.Figures, u)
			}
		}
	}
	if o.format == "json" {
		return writeJSON(out, doc)
	}
	return printCluster(out, db.Platforms[o.platform].Name, &doc)
}

// maxClusterNodes is far beyond any cluster.
const maxClusterNodes = 1 << 20

func (o *predictOptions) predictAll(p *predict.Predictor) (rows []predict.Prediction, err error) {
	for _, b := range o.sizesParsed {
		r, err := p.Predict(b)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func printCluster(out io.Writer, name string, d *clusterDoc) error {
	w := errWriter{out: out}
	joined := ""
	if d.Domains > 1 {
		joined = ", joined by the network"
	}
	w.printf("%s: %d nodes, %d GPUs: %s of %d%s (predicted, not measured)\n", name, d.Nodes, d.GPUs, plural(d.Domains, "NVLink domain"), d.GPUsPerDomain, joined)
	w.printf("%-14s %14s %14s %10s %10s  %s\n", "collective", "bytes", "time us", "algbw GB/s", "busbw GB/s", "by")
	for _, c := range d.Collectives {
		for _, r := range c.Rows {
			w.printf("%-14s %14d %14.1f %10.2f %10.2f  %s %s%s\n", c.Collective, r.Bytes, r.Micros, r.AlgBW, r.BusBW, r.Algorithm, r.Protocol, extended(r, d.GPUs))
		}
	}
	b, g, ct, h := d.Run.Bootstrap, d.Run.Gathering, d.Run.Certificate, d.Run.Hunt
	w.printf("\na run of the suite fabric, one rank a node, besides the transfers that it measures (docs/scale.md):\n")
	w.printf("  %-12s %d connections and %d messages at rank 0, at most %d ends of links in a tree of %d levels; %.1f s of processor time of all ranks\n",
		"bootstrap", b.Connections, b.Messages, b.LinkEnds, b.Levels, b.Seconds)
	w.printf("  %-12s %d levels, %d messages, %s in all; at most %d messages and %s of a rank; %.1f s of processor time of all ranks\n",
		"gathering", g.Levels, g.Messages, amount(g.Bytes), g.MessagesOfRank, amount(g.BytesOfRank), g.Seconds)
	where := "beside it, by their digests"
	if ct.Bytes > ct.Embedded {
		where = "inside"
	}
	w.printf("  %-12s %s; the nodes' own are %s, %s\n", "certificate", amount(ct.Bytes), amount(ct.Embedded), where)
	w.printf("  %-12s about %.0f rounds where nothing is slow, %.0f to name a node (at most %d): %.0f measurements, %.0f s at %d s a round\n",
		"hunt", h.Rounds, h.RoundsFault, h.Bound, h.Measurements, h.Seconds, scale.RoundSeconds)
	w.printf("\nfigures:\n")
	for _, u := range d.Figures {
		w.printf("  %-33s %-46s %s\n", u.Name, u.Value, u.Source)
	}
	return w.err
}

// extended says how many GPUs were simulated, if the prediction is for more.
func extended(r predictedRow, gpus int) string {
	if r.Simulated == gpus {
		return ""
	}
	return fmt.Sprintf(" (from %d GPUs)", r.Simulated)
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
