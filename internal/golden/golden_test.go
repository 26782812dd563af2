package golden

import "testing"

func TestCommand(t *testing.T) {
	t.Run("case", func(t *testing.T) {
		const want = "go test github.com/assay-hpc/assay/internal/golden -run '^TestCommand$' -args -update"
		if got := command(t); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	})
}
