// Package nvsentinel reports a certificate to NVSentinel as its preflight checks do: one health
// event, sent to the platform connector of the node.
package nvsentinel

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/assay-hpc/assay/harness/site"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// A Strategy says what NVSentinel does with an event. Its values are those of the protocol.
type Strategy int

// The strategies.
const (
	Execute Strategy = 1 // repair and quarantine
	Store   Strategy = 2 // only keep it; a pod is not held back
)

// ParseStrategy reads the value of PROCESSING_STRATEGY.
func ParseStrategy(s string) (Strategy, error) {
	switch s {
	case "", "EXECUTE_REMEDIATION":
		return Execute, nil
	case "STORE_ONLY":
		return Store, nil
	}
	return 0, fmt.Errorf("PROCESSING_STRATEGY is EXECUTE_REMEDIATION or STORE_ONLY, not %q", s)
}

// An Event is a HealthEvent of NVSentinel's protocol, as far as it is used here.
type Event struct {
	Agent, Component, Check string
	Fatal, Healthy          bool
	Message                 string
	Action                  int // recommended action
	Codes                   []string
	Time                    time.Time
	Node                    string
	Strategy                Strategy
}

// Recommended actions of the protocol.
const (
	actionNone           = 0
	actionContactSupport = 5
)

// maxMessage is the maximum length of a message.
const maxMessage = 1024

// Of returns the event for a certificate. A failed check is fatal. Checks that could not be carried
// out are not: they show nothing about the hardware.
func Of(st *certificate.Statement, node string, s Strategy) Event {
	p := &st.Predicate
	e := Event{Agent: "assay", Component: "Node", Check: "Assay", Message: site.Reason(st, maxMessage), Time: p.Finished, Node: node, Strategy: s}
	switch p.Verdict {
	case result.Pass:
		e.Healthy = true
		e.Message = fmt.Sprintf("%ssuite %s, %d checks passed", site.Prefix, p.Suite, result.Count(p.Results)[result.Pass])
	case result.Fail:
		e.Fatal, e.Action = true, actionContactSupport
	}
	if !e.Healthy {
		for i := range p.Results {
			if r := &p.Results[i]; r.Verdict == p.Verdict {
				e.Codes = append(e.Codes, r.ID)
			}
		}
	}
	return e
}

// marshal returns the message HealthEvents with this event alone. Zero values are left out, as
// proto3 has it.
func (e *Event) marshal() []byte {
	var b []byte
	text := func(field protowire.Number, s string) {
		if s != "" {
			b = protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
		}
	}
	number := func(field protowire.Number, n uint64) {
		if n != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
		}
	}
	number(1, 1) // version
	text(2, e.Agent)
	text(3, e.Component)
	text(4, e.Check)
	number(5, protowire.EncodeBool(e.Fatal))
	number(6, protowire.EncodeBool(e.Healthy))
	text(7, e.Message)
	number(8, uint64(e.Action))
	for _, c := range e.Codes {
		text(9, c)
	}
	stamp := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(e.Time.Unix()))
	stamp = protowire.AppendVarint(protowire.AppendTag(stamp, 2, protowire.VarintType), uint64(e.Time.Nanosecond()))
	b = protowire.AppendBytes(protowire.AppendTag(b, 12, protowire.BytesType), stamp)
	text(13, e.Node)
	number(16, uint64(e.Strategy))

	events := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1) // version
	return protowire.AppendBytes(protowire.AppendTag(events, 2, protowire.BytesType), b)
}
