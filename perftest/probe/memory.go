package probe

// A Memory is the location of a test's data outside host memory.
type Memory struct {
	Address uint64 // of its first byte
	DMABuf  int    // file descriptor for the NIC's driver; -1: register by address
	Offset  uint64 // of its first byte in the DMA buffer
	Close   func() error
}
