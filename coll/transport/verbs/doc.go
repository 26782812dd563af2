// Package verbs is the transport over InfiniBand and RoCE: reliable
// connections of libibverbs, which perftest/verbs looks up when the program
// runs. NCCL calls it IB.
//
// Without cgo there is no code here, and Find says so.
//
// # Connections
//
// Package slots has all that is not the device's. What a sender asks with and a
// receiver answers are its queue pairs, as many on both sides, and where the
// other one may write (setup.go). Each connection has a completion queue of its
// own, as each is used by one goroutine at a time.
//
// # Messages
//
// A message goes into the receiver's slot of the same number by one RDMA write
// with immediate: the completion on the other side says that all of it is there,
// and the immediate which message it is. With several queue pairs messages take
// turns, or each is split over all of them (Params.Split). They may complete in
// any order; the receiver counts the parts of each and hands messages out in
// theirs.
//
// The receiver writes how many messages it has released into a word of the
// sender's memory: the credit. The sender looks at it there, without a
// completion. There is a receive request for whatever a credit allows, so that
// a sender never meets a receiver that is not ready.
//
// # Goodbye
//
// Each end waits until what it has posted is done and says how many messages it
// has sent or released. Then neither writes into memory that the other one takes
// down.
package verbs

import "errors"

// ErrUnavailable is why there is no such network: the build has no cgo, there
// is no libibverbs, or no device with a port that can be used.
var ErrUnavailable = errors.New("no InfiniBand")

// Name is what NCCL_NET and logs call the network.
const Name = "IB"
