package membw

import "encoding/binary"

// word is the word of the test data at an index, as in ptx/kernels.cu.
func word(seed, i uint64) uint64 {
	z := (seed + i) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fillHost writes test data to the whole words of host memory.
func fillHost(b []byte, seed uint64) {
	for i := range len(b) / 8 {
		binary.LittleEndian.PutUint64(b[8*i:], word(seed, uint64(i)))
	}
}

// checkHost counts the words that differ from the test data; first is the byte offset of the first
// of them. Of the last word only the bytes within the length are compared.
func checkHost(b []byte, bytes int, seed uint64) (wrong, first int64) {
	words := (bytes + 7) / 8
	for i := range words {
		differs := binary.LittleEndian.Uint64(b[8*i:]) ^ word(seed, uint64(i))
		if rest := bytes % 8; i == words-1 && rest > 0 {
			differs &= 1<<(8*rest) - 1
		}
		if differs != 0 {
			if wrong == 0 {
				first = int64(8 * i)
			}
			wrong++
		}
	}
	return wrong, first
}

// ringOrder is an order of n lines that no prefetcher can predict. It is the same every time.
func ringOrder(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	for i := n - 1; i > 0; i-- {
		j := int(word(1, uint64(i)) % uint64(i+1))
		order[i], order[j] = order[j], order[i]
	}
	return order
}
