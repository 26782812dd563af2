// Package wire is the control channel of linux-rdma/perftest: the TCP
// connection over which two sides of a test agree on what they need to know of
// each other (queue pairs, memory keys, GIDs), meet at barriers, and exchange
// results. It interoperates with the C tools of releases 4.5-0.2 (protocol
// version 5.98) to 26.04 (6.29); see docs/ib.md.
//
// Every exchange is a swap of messages of equal size, without any framing: the
// client writes and then reads, the server reads and then writes. The C tools
// take a message with one read, so each is sent with one write. They have no
// timeouts; here every exchange has one.
//
// What is sent says nothing of the test itself: two sides with different
// options get out of step. The errors of this package say which exchange
// failed, what arrived instead, and what usually makes that happen.
package wire

import "time"

// A Role is a side of the connection. It says who writes first, and nothing of
// who generates traffic.
type Role bool

const (
	Server Role = false // accepted the connection
	Client Role = true  // made the connection
)

func (r Role) String() string {
	if r == Client {
		return "client"
	}
	return "server"
}

// DefaultPort is where the tools listen unless told otherwise.
const DefaultPort = 18515

// Version is what we announce. Peers from 5.70 on but 6.28 then use the plain
// protocol, without the parameter block.
const Version = "6.06"

const (
	dialTimeout     = 10 * time.Second
	exchangeTimeout = 30 * time.Second
	// helloTimeout is how long a client may take until its first message:
	// ib_write_bw sleeps for a second after it has connected.
	helloTimeout = 10 * time.Second
	// candidates is how many connections a server looks at at a time.
	candidates = 16
)

// Options are those of Dial and Listen. The zero value is fine.
type Options struct {
	// Network is "tcp", "tcp4" or "tcp6"; empty is "tcp". The C tools of 4.5
	// speak IPv4 only, which "tcp" falls back to.
	Network string
	// Source is the local address that a client connects from; empty leaves the
	// choice to the routing table.
	Source string
	// DialTimeout limits an attempt to connect; 0 is 10 s.
	DialTimeout time.Duration
	// Retry is for how long a client goes on trying while nobody listens; 0 is
	// one attempt, as the C tools make.
	Retry time.Duration
	// Timeout limits an exchange; 0 is 30 s, a negative one is none but the
	// context's. See Conn.SetTimeout.
	Timeout time.Duration
	// HelloTimeout is how long a server waits for the first message of a
	// connection before it takes it for a port scanner's; 0 is 10 s.
	HelloTimeout time.Duration
	// CM is set for a connection of rdma_cm, each of whose writes is a message of
	// its own: records are binary there.
	CM bool
	// Rejected is told of connections that a server did not take for a peer's.
	// It may be nil, and must not block.
	Rejected func(error)
}
