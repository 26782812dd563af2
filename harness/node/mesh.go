package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/perftest/mesh"
)

// meshParams is what stands under "with" of mesh.
type meshParams struct {
	Args []string `yaml:"args"` // flags of harness ib mesh
}

// mesh makes one check: of all ports of the node with one another.
func (c *Config) mesh(e *suite.Entry) ([]suite.Check, error) {
	var p meshParams
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if err := figures(e, nil); err != nil {
		return nil, err
	}
	return []suite.Check{{
		ID: e.ID, Title: "RDMA between the node's ports is as fast as they are", Uses: []string{useNetwork}, Timeout: 5 * time.Minute,
		Run: func(ctx context.Context, _ *suite.Env) suite.Result {
			switch c.Machine.Ports {
			case 0:
				return suite.Skipped("no RDMA device has a port that is up")
			case 1:
				return suite.Skipped("one port of an RDMA device is up, and it takes two")
			}
			r, bad := report[mesh.Report](ctx, c.Run, append([]string{"ib", "mesh", "--output", "json"}, p.Args...)...)
			if bad != nil {
				return *bad
			}
			return meshResult(r)
		},
	}}, nil
}

// meshResult is a mesh's report.
func meshResult(r *mesh.Report) suite.Result {
	name := func(i int) string { return fmt.Sprintf("%s/%d", r.Ports[i].Device, r.Ports[i].Port) }
	var objects []certificate.Object
	for _, cell := range r.Cells {
		o := certificate.Object{Name: name(cell.From), Peer: name(cell.To), Verdict: certificate.Verdict(cell.Verdict), Reason: cell.Reason}
		if cell.Error != "" {
			o.Verdict, o.Reason = certificate.Error, cell.Error
		}
		if cell.Value > 0 {
			value, samples := scaled(r.Unit, cell.Value), make([]float64, 0, len(cell.Samples))
			for _, s := range cell.Samples {
				samples = append(samples, scaled(r.Unit, s))
			}
			o.Measured = measured(value, unitOf(r.Unit), scaled(r.Unit, cell.Reference), "the slower port's rate")
			o.Measured.Spread = spread(samples)
		}
		objects = append(objects, o)
	}
	res := of(distinct(objects))
	res.Measured = speaking(objects)
	var said []string
	for _, f := range r.Findings {
		said = append(said, f.Text)
	}
	if len(said) > 0 {
		res.Verdict = certificate.Worst(res.Verdict, certificate.Verdict(r.Verdict))
		res.Reason = strings.Join(said, "; ")
		res.Remedy = "look at the port's counters and cable (harness ib devices, harness health)"
	}
	if res.Verdict == certificate.Pass {
		res.Reason = values(objects)
	}
	return res
}

// scaled makes what a mesh measures what people read: Gb/s, or µs.
func scaled(unit string, v float64) float64 {
	if unit == "nanoseconds" {
		return v / 1e3
	}
	return v * 8 / 1e9
}

func unitOf(unit string) string {
	if unit == "nanoseconds" {
		return "us"
	}
	return "Gb/s"
}
