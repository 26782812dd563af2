// Package verbs contains the parts of libibverbs that RDMA probes and transports need: devices,
// ports and their addresses, memory regions, completion queues, queue pairs and their states, work
// requests, and asynchronous events; and from librdmacm, connections by IP address (CM).
//
// The libraries are loaded when they are first needed (Load, NewCM), so programs that use this
// package start where they are not installed. Without cgo, Load and Names return an error, and the
// functions for devices are not available.
//
// Names are those of the InfiniBand specification: QP, CQ, PD, MR, GID, GRH, LID, PSN, RC, UC, UD.
// Every failed call returns an *Error, every failed completion a *CompletionError; both give the
// usual cause.
//
// Work requests and completions are in memory that the library reads and writes. Sends and Recvs
// are arrays of requests outside of Go's memory, created once and posted any number of times;
// polling fills a slice of the caller. Neither allocates.
package verbs

import "errors"

// ErrNoLibrary means that libibverbs cannot be used here.
var ErrNoLibrary = errors.New("no RDMA verbs")
