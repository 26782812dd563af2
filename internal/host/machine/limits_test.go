package machine

import "testing"

func TestPIDsMax(t *testing.T) {
	if v := pidsMax("max"); v == nil || *v != ^uint64(0) {
		t.Errorf("pidsMax(max) = %v", v)
	}
	if v := pidsMax("1024"); v == nil || *v != 1024 {
		t.Errorf("pidsMax(1024) = %v", v)
	}
	if v := pidsMax("many"); v != nil {
		t.Errorf("pidsMax(many) = %d", *v)
	}
}
