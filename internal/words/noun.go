package words

import (
	"fmt"
	"strconv"
)

// Count returns "1 check", "2 checks".
func Count(n int, noun string) string { return fmt.Sprintf("%d %s", n, Form(n, noun)) }

// Form returns the noun alone, in its form for n of them. It is for nouns whose plural has an s.
func Form(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// Ranges returns ascending numbers as "0-3", "7".
func Ranges(numbers []int) (out []string) {
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		text := strconv.Itoa(numbers[i])
		if j > i {
			text += "-" + strconv.Itoa(numbers[j])
		}
		out = append(out, text)
		i = j + 1
	}
	return out
}
