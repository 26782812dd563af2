// Package tcp measures the bandwidth of TCP between two hosts, one direction at a time or both at
// once. Each host runs a [Server]; [Measure] requests a measurement from a server.
//
// # What is measured
//
// A direction has several streams, which are all open before the first byte is sent. The sender
// keeps them full. The receiver's clock starts at the first received byte. After the warm-up, and
// again after the requested duration, it reads the number of received bytes, and then cuts the
// streams off by a reset. So no side waits for the data in flight at the end: a deep queue makes a
// measurement longer by a few round trips, not by the time that it takes to drain.
//
// The sender's kernel (TCP_INFO) counts retransmissions over the same time. On a link that TCP
// itself fills, some loss is normal: TCP finds the link's limit by it.
//
// # Access
//
// Each connection begins with a challenge and response keyed with the token (internal/meet).
// Connections that fail it are dropped after seconds, and their number at any time is limited. A
// peer that knows the token is trusted to measure; the total resources of these peers are limited,
// too.
package tcp
