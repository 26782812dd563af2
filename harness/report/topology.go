package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// A drawing shows a machine's parts from left to right: NUMA nodes, the parts below them, the
// devices in one column, and NVSwitches at the right. It also contains everything as tables.
type drawing struct {
	Alt     string
	W, H    int
	Boxes   []box
	Edges   []edge
	Parts   []partRow
	Links   []linkRow
	Drawn   bool
	Faulty  bool // some box has a verdict sign
	Unnamed bool // some links have no text
}

// A box is the box of a part.
type box struct {
	Class        string
	X, Y, W, H   float64
	TextX, TextY float64
	Text         string
}

func (b box) middle() float64 { return b.Y + b.H/2 }

// An edge connects boxes.
type edge struct {
	Class, Path, Text string
	TextX, TextY      float64
	Anchor            string
}

type partRow struct{ Label, Kind, Under, Link string }

type linkRow struct{ A, B, Kind, Count, Rate string }

// Measures of a drawing, in pixels.
const (
	boxHeight   = 26
	boxWidth    = 132
	rowPitch    = 40
	columnPitch = 236
	fabricGap   = 160 // between devices and NVSwitches
	lanePitch   = 16
	boxChars    = 17 // that fit into a box
	edgeChars   = 15 // that fit between two columns
	margin      = 12
	// mostParts, mostDeep and mostLanes are the limits of what is readable.
	mostParts = 160
	mostDeep  = 6
	mostLanes = 8
)

var kindNames = map[certificate.PartKind]string{
	certificate.PartCPU: "NUMA node", certificate.PartSwitch: "PCIe switch", certificate.PartGPU: "GPU", certificate.PartNIC: "NIC", certificate.PartNVSwitch: "NVSwitch",
}

// draw lays out a topology. Each part shows the worst verdict of the certificate's objects with its
// label.
func draw(t *certificate.Topology, results []result.Result) drawing {
	d := drawing{Alt: topologyText(t)}
	label := map[string]string{}
	for _, p := range t.Parts {
		label[p.ID] = p.Label
		kind := kindNames[p.Kind]
		kind = cmp.Or(kind, string(p.Kind))
		d.Parts = append(d.Parts, partRow{p.Label, kind, label[p.Under], p.Link})
	}
	for _, l := range t.Links {
		row := linkRow{A: label[l.A], B: label[l.B], Kind: l.Kind}
		if l.Count > 0 {
			row.Count = fmt.Sprint(l.Count)
		}
		if l.GBps > 0 {
			row.Rate = fmt.Sprintf("%.4g GB/s", l.GBps)
		}
		d.Links = append(d.Links, row)
	}
	lay := newLayout(t, worstOf(results))
	if lay == nil {
		return d
	}
	d.Drawn = true
	lay.draw(&d)
	return d
}

// topologyText describes a drawing in a sentence.
func topologyText(t *certificate.Topology) string {
	var parts []string
	for _, kind := range []certificate.PartKind{certificate.PartCPU, certificate.PartSwitch, certificate.PartGPU, certificate.PartNIC, certificate.PartNVSwitch} {
		n := 0
		for _, p := range t.Parts {
			if p.Kind == kind {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d × %s", n, kindNames[kind]))
		}
	}
	if len(t.Links) > 0 {
		parts = append(parts, counted(t.Links, func(l certificate.Link) string { return "(" + linkText(l) + ")" }))
	}
	return strings.Join(parts, ", ")
}

// linkText describes a link: the number and kind of its lanes, and its rate.
func linkText(l certificate.Link) string {
	s := l.Kind
	if l.Count > 0 {
		s = fmt.Sprintf("%d × %s", l.Count, l.Kind)
	}
	if l.GBps > 0 {
		s += fmt.Sprintf(", %.4g GB/s", l.GBps)
	}
	return s
}

// worstOf returns the worst verdict of all objects, by name and by the device of a port
// ("mlx5_0/1").
func worstOf(results []result.Result) map[string]result.Verdict {
	worst := map[string]result.Verdict{}
	for _, r := range results {
		for _, o := range r.Objects {
			device, _, _ := strings.Cut(o.Name, "/")
			for _, name := range slices.Compact([]string{o.Name, device}) {
				if was, ok := worst[name]; ok {
					worst[name] = result.Worst(was, o.Verdict)
				} else {
					worst[name] = o.Verdict
				}
			}
		}
	}
	return worst
}
