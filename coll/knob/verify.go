package knob

import (
	"fmt"
	"strconv"
	"strings"
)

// A Verify is how many operations are verified, see ASSAY_CHECK: Some of Of. The zero value: none.
type Verify struct {
	Some, Of uint64
	Fail     bool // the communicator fails when one is wrong
}

// mostVerified bounds Verify.Of.
const mostVerified = 1_000_000_000

// ParseVerify parses a value of ASSAY_CHECK: "1/1000", "1/1000:fail", "1", "0".
func ParseVerify(s string) (v Verify, err error) {
	part, then, ends := strings.Cut(s, ":")
	some, of, fraction := strings.Cut(part, "/")
	if !fraction {
		of = "1"
	}
	if v.Some, err = strconv.ParseUint(some, 10, 32); err == nil {
		v.Of, err = strconv.ParseUint(of, 10, 32)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("want a share of the operations, such as 1/1000, or 0 or 1")
	case v.Of == 0 || v.Of > mostVerified:
		err = fmt.Errorf("the number behind / is 1 to %d", mostVerified)
	case v.Some > v.Of:
		err = fmt.Errorf("%d of %d is more than all", v.Some, v.Of)
	case ends && then != "fail":
		err = fmt.Errorf("%q follows the colon; want fail, or no colon", then)
	}
	if err != nil || v.Some == 0 {
		return Verify{}, err
	}
	v.Fail = ends
	return v, nil
}

// String is the value that ParseVerify parses.
func (v Verify) String() string {
	if v.Some == 0 {
		return "0"
	}
	s := fmt.Sprintf("%d/%d", v.Some, v.Of)
	if v.Fail {
		s += ":fail"
	}
	return s
}

// Due reports whether the operation with a number is verified. Which ones are looks like chance, because
// programs call the same operations again and again, and is the same on all ranks.
func (v Verify) Due(number uint64) bool {
	if v.Some == 0 {
		return false
	}
	// The finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
	z := number*0x9e3779b97f4a7c15 + 0x2545f4914f6cdd1d
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z^z>>31)%v.Of < v.Some
}

func verify(field func(*Knobs) *Verify) kind {
	return kind{"N/M or N/M:fail, for N of M operations; 0: none", func(k *Knobs, s string) (err error) {
		*field(k), err = ParseVerify(s)
		return err
	}}
}
