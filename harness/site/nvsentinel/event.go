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

var strategyNames = map[Strategy]string{Execute: "EXECUTE_REMEDIATION", Store: "STORE_ONLY"}

// ParseStrategy reads the value of PROCESSING_STRATEGY.
func ParseStrategy(s string) (Strategy, error) {
	for value, name := range strategyNames {
		if s == name {
			return value, nil
		}
	}
	if s == "" {
		return Execute, nil
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

var actionNames = map[int]string{actionNone: "NONE", actionContactSupport: "CONTACT_SUPPORT"}

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
	if p.Verdict == result.Fail || p.Verdict == result.Error { // that all were skipped is no check's fault
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

// Events is the message HealthEvents in protobuf's JSON.
type Events struct {
	Version int         `json:"version"`
	Events  []jsonEvent `json:"events"`
}

// jsonEvent is an Event in protobuf's JSON, which leaves zero values out.
type jsonEvent struct {
	Version   int       `json:"version"`
	Agent     string    `json:"agent,omitempty"`
	Component string    `json:"componentClass,omitempty"`
	Check     string    `json:"checkName,omitempty"`
	Fatal     bool      `json:"isFatal,omitempty"`
	Healthy   bool      `json:"isHealthy,omitempty"`
	Message   string    `json:"message,omitempty"`
	Action    string    `json:"recommendedAction,omitempty"`
	Codes     []string  `json:"errorCode,omitempty"`
	Time      time.Time `json:"generatedTimestamp"`
	Node      string    `json:"nodeName,omitempty"`
	Strategy  string    `json:"processingStrategy,omitempty"`
}

// JSON returns the message HealthEvents with this event alone.
func (e Event) JSON() Events {
	return Events{1, []jsonEvent{{
		1, e.Agent, e.Component, e.Check, e.Fatal, e.Healthy, e.Message, actionNames[e.Action], e.Codes, e.Time.UTC(), e.Node, strategyNames[e.Strategy],
	}}}
}
