// Package verbs is the transport over InfiniBand and RoCE. It uses reliable connections
// of libibverbs, which internal/verbs loads at run time. NCCL calls it IB.
//
// Without cgo this package contains no transport, and Find returns an error that says so.
//
// # Connections
//
// Package slots does everything that is not specific to the device. The sender's ask and
// the receiver's answer contain their queue pairs, the same number on both sides, and the
// memory into which the peer may write (setup.go). Each connection has its own completion
// queue, as one goroutine at a time uses each connection.
//
// # Messages
//
// A message goes into the receiver's slot of the same number by one RDMA write with
// immediate: the completion on the receiver means that all of the message has arrived,
// and the immediate identifies it. With several queue pairs, messages alternate between
// them, or each message is split over all of them (Params.Split). They may complete in
// any order; the receiver counts the parts of each message and delivers messages in
// order.
//
// The receiver writes the number of messages that it has released into a word of the
// sender's memory: the credit. The sender reads it there, without a completion. The
// receiver has posted a receive request for everything that the credit allows, so that a
// sender never meets a receiver that is not ready.
//
// # Goodbye
//
// Each end waits until its posted requests are done, and then tells the other how many
// messages it has sent or released. After that, neither writes into memory that the other
// releases.
package verbs

import "errors"

// errUnavailable means that there is no such network: the build has no cgo, there is no
// libibverbs, or no device has a usable port.
var errUnavailable = errors.New("no InfiniBand")

// Name is the name of the network in NCCL_NET and in logs.
const Name = "IB"
