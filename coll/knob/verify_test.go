package knob

import "testing"

// TestVerifyDue: as many operations are verified as the share says, and a program's period does not hide
// any of its operations.
func TestVerifyDue(t *testing.T) {
	v := Verify{Some: 1, Of: 1000}
	due, of := 0, map[uint64]bool{}
	for i := range uint64(1_000_000) {
		if v.Due(i) {
			due++
			of[i%100] = true
		}
	}
	if due < 900 || due > 1100 || len(of) != 100 {
		t.Errorf("%d of a million are verified, of %d operations of a step of 100", due, len(of))
	}
	for i := range uint64(100) {
		if (Verify{}).Due(i) || !(Verify{Some: 1, Of: 1}).Due(i) {
			t.Errorf("operation %d", i)
		}
	}
}

// FuzzVerify: what is accepted is a share, and is parsed from its own text again.
func FuzzVerify(f *testing.F) {
	f.Add("1/1000:fail")
	f.Add("1")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVerify(s)
		if err != nil {
			return
		}
		if v.Some > v.Of || (v.Some == 0) != (v == Verify{}) {
			t.Errorf("%q: %+v", s, v)
		}
		if again, err := ParseVerify(v.String()); err != nil || again != v {
			t.Errorf("%q: %+v, and %q: %+v, %v", s, v, v.String(), again, err)
		}
	})
}
