// Package rig prepares GPUs for measurements: contexts, kernels, streams, events and memory, all of
// which are freed when their GPU is closed. It has code only in builds with cgo and the tag cuda.
package rig
