// Package wire is the control channel of linux-rdma/perftest: the TCP connection over which the two
// sides of a test exchange what they need to know about each other (queue pairs, memory keys,
// GIDs), meet at barriers, and exchange results. It interoperates with the C tools of releases
// 4.5-0.2 (protocol version 5.98) to 26.04 (6.29); see docs/ib.md.
//
// Every exchange is a swap of messages of equal size, without any framing: the client writes and
// then reads, the server reads and then writes. The C tools receive a message with one read, so
// each is sent with one write. They have no timeouts; here every exchange has one.
//
// The messages do not describe the test itself, so two sides with different options get out of
// step. The errors of this package say which exchange failed, what arrived instead, and the usual
// cause.
package wire

import "time"

// A Role is a side of the connection. It determines which side writes first, not which side
// generates traffic.
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

// DefaultPort is the port where the tools listen by default.
const DefaultPort = 18515

// Version is the version that we announce, which is that of release 26.04. Peers of the same or a
// later version then exchange the parameter block, older ones use the plain protocol without it; only
// 6.28 itself always requires the block.
const Version = "6.29"

const (
	dialTimeout     = 10 * time.Second
	exchangeTimeout = 30 * time.Second
	// helloTimeout is how long a client may take to send its first message: ib_write_bw sleeps for
	// a second after it has connected.
	helloTimeout = 10 * time.Second
	// candidates is the number of connections that a server examines at once.
	candidates = 16
)

// Options are those of Dial and Listen. The zero value is fine.
type Options struct {
	// Network is "tcp", "tcp4" or "tcp6"; empty is "tcp". The C tools of 4.5 support only IPv4, to
	// which "tcp" falls back.
	Network string
	// Source is the local address from which a client connects; if empty, the routing table
	// decides.
	Source string
	// DialTimeout limits an attempt to connect; 0 is 10 s.
	DialTimeout time.Duration
	// Retry is how long a client retries while no server listens; 0 is one attempt, as in the C
	// tools.
	Retry time.Duration
	// Timeout limits an exchange; 0 is 30 s. See also Conn.Keep.
	Timeout time.Duration
	// HelloTimeout is how long a server waits for the first message of a connection before it
	// rejects it as a port scanner's; 0 is 10 s.
	HelloTimeout time.Duration
	// CM is set for an rdma_cm connection, on which each write is a separate message: records are
	// binary there.
	CM bool
	// Rejected is called for connections that a server rejected because they are not a peer's. It
	// may be nil, and must not block.
	Rejected func(error)
}
