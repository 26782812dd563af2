// Package verbs is what RDMA probes and transports need of libibverbs: devices,
// ports and their addresses, memory regions, completion queues, queue pairs and
// their states, work requests, and asynchronous events; and of librdmacm,
// connections by IP address (CM).
//
// The libraries are looked up when they are first needed (Load, NewCM), so
// programs that use this package start where they are not installed. Without cgo
// these say that too, and nothing else is there.
//
// Names are those of the InfiniBand specification: QP, CQ, PD, MR, GID, GRH,
// LID, PSN, RC, UC, UD. Every call that fails returns an *Error, every
// completion that is none a *CompletionError; both say what the usual cause is.
//
// Work requests and completions are memory that the library reads and writes.
// Sends and Recvs are arrays of requests outside of Go's memory, made once and
// posted as often as wanted; polling fills a caller's slice. Neither allocates.
package verbs

import "errors"

// ErrNoLibrary is that libibverbs cannot be used here at all.
var ErrNoLibrary = errors.New("no RDMA verbs")
