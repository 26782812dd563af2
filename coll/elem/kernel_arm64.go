package elem

// Every arm64 processor has the instructions that the assembly uses.
func init() {
	for t, row := range neonReduce {
		for op, k := range row {
			if k != nil {
				reduces[t][op] = k
			}
		}
		if row[Sum] != nil {
			reduces[t][Avg] = row[Sum]
		}
	}
}
