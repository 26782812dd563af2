package probe

// A Memory is where a test's data lie when that is not the host's memory.
type Memory struct {
	Address uint64 // of its first byte
	DMABuf  int    // the descriptor by which the NIC's driver reaches it; -1: it takes the address
	Offset  uint64 // of its first byte in the DMA buffer
	Close   func() error
}
