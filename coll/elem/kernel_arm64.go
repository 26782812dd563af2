package elem

// Every arm64 processor has the instructions that the assembly uses.
func init() {
	for t, row := range neonReduce {
		for op, k := range row {
			if k != nil {
				used[t].reduce[op] = k
			}
		}
		if row[Sum] != nil {
			used[t].reduce[Avg] = row[Sum]
		}
	}
}
