//go:build amd64 || arm64

package host

// pause is the processor's hint that this is a loop that waits for another processor.
func pause()
