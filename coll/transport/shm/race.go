//go:build race

package shm

// raceEnabled keeps ranks of one process out of memory that the race detector
// watches: what orders those accesses lies in memory that it does not.
const raceEnabled = true
