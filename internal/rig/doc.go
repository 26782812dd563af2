// Package rig prepares GPUs for measuring: contexts, kernels, streams, events and
// memory, all of which end with the GPU that they belong to. It has code only in
// builds with cgo and the tag cuda.
package rig
