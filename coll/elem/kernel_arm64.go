package elem

// Every arm64 processor has the instructions that the assembly uses.
func init() { adopt(neon) }
