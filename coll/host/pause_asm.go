//go:build amd64 || arm64

package host

// pause tells the processor that this is a loop that waits for another one.
func pause()
