// Package tcp measures the bandwidth of TCP between two hosts, a direction at a
// time or both at once. Each host has a [Server]; [Measure] asks a server to
// measure with it.
//
// # What is measured
//
// A direction has some streams, all of them open before the first byte moves.
// The sender keeps them full. The receiver's clock begins with the first byte
// that comes; after the warm-up, and again after as long as was asked for, it
// reads how much has come, and then cuts the streams off by a reset. So nobody waits for what
// is on its way at the end: a deep queue makes a measurement longer by a few
// round trips, not by the time that it takes to drain.
//
// What is sent again is counted by the sender's kernel (TCP_INFO), over the same
// time. On a link that TCP itself fills, some loss is how TCP finds the link's
// limit.
//
// # Who may come in
//
// Each connection begins with a challenge and response keyed with the token
// (internal/meet). Strangers are dropped after seconds, and there may be few
// of them at a time. Who knows the token is trusted to measure; what all of them
// together may hold is bounded, too.
package tcp
