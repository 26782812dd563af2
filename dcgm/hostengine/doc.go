// Package hostengine runs the diagnostics of NVIDIA's DCGM through its program
// dcgmi, and gives what they found as results of dcgm/diag. It reads the JSON of
// DCGM 2 to 4, which has no schema: keys that are not known are passed over, and
// what is missing is not needed.
package hostengine
