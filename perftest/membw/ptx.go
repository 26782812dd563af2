package membw

import (
	_ "embed"
	"fmt"
)

//go:embed kernels.sm_80.ptx
var ptx80 []byte

//go:embed kernels.sm_90.ptx
var ptx90 []byte

// ptx is the text of the kernels for a compute capability, ten times the major
// plus the minor number.
func ptx(cc int) ([]byte, error) {
	switch {
	case cc >= 90:
		return ptx90, nil
	case cc >= 80:
		return ptx80, nil
	}
	return nil, fmt.Errorf("compute capability %d.%d is too old: the kernels need 8.0", cc/10, cc%10)
}
