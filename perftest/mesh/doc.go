// Package mesh measures bandwidth or latency between all of a set of RDMA ports:
// those of the hosts of a job, or of one host alone. A Schedule divides the pairs
// into rounds, package probe measures each pair, and the verdict names the port,
// path or host that is slow. docs/ib.md is for users.
package mesh
