// Package gputest handles tests that need GPUs on machines without them. They are skipped, unless
// ASSAY_TEST_GPUS sets how many GPUs there must be. Then fewer GPUs, or a driver that does not
// work, fail the test.
package gputest

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"
)

// Variable is the environment variable with the number of GPUs of the test machine.
const Variable = "ASSAY_TEST_GPUS"

// Need skips a test that needs n GPUs if there are fewer. have is the number found, 0 if there was
// an error err. absent are the errors that mean that there is no driver or no GPU. All other errors
// fail the test.
func Need(t testing.TB, n, have int, err error, absent ...error) {
	t.Helper()
	must := 0
	if s := os.Getenv(Variable); s != "" {
		var bad error
		if must, bad = strconv.Atoi(s); bad != nil || must < 0 {
			t.Fatalf("%s=%q is not a number of GPUs", Variable, s)
		}
	}
	missing := slices.ContainsFunc(absent, func(e error) bool { return errors.Is(err, e) })
	switch {
	case err != nil && !missing:
		t.Fatal(err)
	case have < must:
		t.Fatalf("%s=%d, but there are %d GPUs (%v)", Variable, must, have, err)
	case err != nil:
		t.Skip(err)
	case have < n:
		t.Skipf("%d GPUs are needed, there are %d", n, have)
	}
}
