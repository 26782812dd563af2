package certificate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Node describes the machine on which a certificate was made, in a certificate that is about
// that machine.
type Node struct {
	Name string `json:"name"` // host name
	// Identity distinguishes the machine from all others, whatever is installed on it: UUIDs of
	// its GPUs, its product's UUID, GUIDs of its adapters. The digest of these ([NodeDigest]) is
	// the certificate's subject.
	Identity []string `json:"identity"`

	Vendor    string `json:"vendor,omitempty"` // of the machine, with its product name
	Product   string `json:"product,omitempty"`
	Cloud     string `json:"cloud,omitempty"`
	Instance  string `json:"instance,omitempty"`
	Container string `json:"container,omitempty"` // kubernetes, docker, …
	// Platform is the nearest match in the hardware database; Differences lists the deviations.
	Platform    string   `json:"platform,omitempty"`
	Differences []string `json:"differences,omitempty"`

	Driver    string            `json:"driver,omitempty"` // NVIDIA's
	CUDA      string            `json:"cuda,omitempty"`   // version that the driver supports
	GPUs      []GPU             `json:"gpus,omitempty"`
	Ports     []Port            `json:"ports,omitempty"`
	Versions  map[string]string `json:"versions,omitempty"`  // of libraries and firmware, by name
	Variables map[string]string `json:"variables,omitempty"` // of the environment, which change what is measured
	Topology  *Topology         `json:"topology,omitempty"`
}

// A GPU is one GPU of a node.
type GPU struct {
	Index  int    `json:"index"`
	Name   string `json:"name"`
	UUID   string `json:"uuid,omitempty"`
	Bus    string `json:"bus,omitempty"` // PCI address
	VBIOS  string `json:"vbios,omitempty"`
	Memory int64  `json:"memory,omitempty"` // bytes
}

// A Port is one port of an RDMA device.
type Port struct {
	Name      string  `json:"name"` // "mlx5_0/1"
	Device    string  `json:"device,omitempty"`
	GUID      string  `json:"guid,omitempty"`
	Firmware  string  `json:"firmware,omitempty"`
	LinkLayer string  `json:"linkLayer,omitempty"`
	State     string  `json:"state,omitempty"`
	Gbit      float64 `json:"gbit,omitempty"` // Gb/s
}

// A Topology is the content of a drawing: the parts of a machine, and their connections.
// Part.Under forms the PCIe tree; Links holds the other connections.
type Topology struct {
	Parts []Part `json:"parts"`
	Links []Link `json:"links,omitempty"`
}

// PartKind says what a part is.
type PartKind string

// The kinds of parts.
const (
	PartCPU      PartKind = "cpu" // of one NUMA node
	PartSwitch   PartKind = "switch"
	PartGPU      PartKind = "gpu"
	PartNIC      PartKind = "nic"
	PartNVSwitch PartKind = "nvswitch" // all NVSwitches of a node
)

// A Part is one component of a topology.
type Part struct {
	ID    string   `json:"id"` // unique
	Kind  PartKind `json:"kind"`
	Label string   `json:"label"`
	Under string   `json:"under,omitempty"` // the part that it is plugged into
	Link  string   `json:"link,omitempty"`  // the connection to it: "PCIe 5 x16"
}

// A Link joins two parts.
type Link struct {
	A     string  `json:"a"`
	B     string  `json:"b"`
	Kind  string  `json:"kind"` // NVLink, C2C, UPI, …
	Count int     `json:"count,omitempty"`
	GBps  float64 `json:"gbps,omitempty"` // all of them together, one direction
}

// validate checks that a topology can be drawn.
func (t *Topology) validate() error {
	seen := map[string]bool{}
	for _, p := range t.Parts {
		if p.ID == "" || seen[p.ID] {
			return fmt.Errorf("topology: the part %q has no id of its own", p.ID)
		}
		if p.Under != "" && !seen[p.Under] {
			return fmt.Errorf("topology: %s is under %q, which does not come before it", p.ID, p.Under)
		}
		seen[p.ID] = true
	}
	for _, l := range t.Links {
		if !seen[l.A] || !seen[l.B] || !finite(l.GBps) {
			return fmt.Errorf("topology: a link from %q to %q does not connect two parts", l.A, l.B)
		}
	}
	return nil
}

// NodeDigest returns the digest of a machine's identity, which may be in any order.
func NodeDigest(identity []string) string {
	lines := slices.Compact(slices.Sorted(slices.Values(identity)))
	sum := sha256.Sum256([]byte("assay node 1\n" + strings.Join(lines, "\n") + "\n"))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// NodePrefix begins the name of a subject that is a machine.
const NodePrefix = "node:"

// SetNode records the machine on which the certificate was made, and adds it as a subject.
func (s *Statement) SetNode(n *Node) error {
	if n.Name == "" || len(n.Identity) == 0 {
		return errors.New("a node needs a name, and something that identifies it")
	}
	s.Predicate.Node = n
	return s.AddSubject(NodePrefix+n.Name, NodeDigest(n.Identity))
}

// validateNode checks that the certificate's node is one of its subjects.
func (s *Statement) validateNode() error {
	n := s.Predicate.Node
	if n == nil {
		return nil
	}
	if len(n.Identity) == 0 {
		return errors.New("the node has no identity")
	}
	digest := strings.TrimPrefix(NodeDigest(n.Identity), "sha256:")
	if !slices.ContainsFunc(s.Subject, func(sub Subject) bool { return sub.Name == NodePrefix+n.Name && sub.Digest["sha256"] == digest }) {
		return fmt.Errorf("it was made on the node %q, and is not about it", n.Name)
	}
	if n.Topology != nil {
		return n.Topology.validate()
	}
	return nil
}
