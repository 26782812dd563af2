// Package gputest is what tests that need GPUs do on machines without: they
// are skipped, unless ASSAY_TEST_GPUS says how many GPUs there must be. Then
// fewer of them, or a driver that does not work, fail the test.
package gputest

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"
)

// Variable is how many GPUs the machine of the tests has.
const Variable = "ASSAY_TEST_GPUS"

// Need skips a test that needs n GPUs where there are fewer. have of them were
// found, or none because of err; absent are the errors that say that there is no
// driver or no GPU. All others fail the test.
func Need(t testing.TB, n, have int, err error, absent ...error) {
	t.Helper()
	must := 0
	if s := os.Getenv(Variable); s != "" {
		var bad error
		if must, bad = strconv.Atoi(s); bad != nil || must < 0 {
			t.Fatalf("%s=%q is no number of GPUs", Variable, s)
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
