// Package mesh measures bandwidth or latency between all RDMA ports of a set: those of the hosts of
// a job, or of a single host. A Schedule divides the pairs into rounds, package probe measures each
// pair, and the verdict names the slow port, path or host. docs/ib.md is for users.
package mesh
