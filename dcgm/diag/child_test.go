package diag

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// In processes with these the test binary is a child, with one of the scenarios.
const (
	childEnv    = "DIAG_TEST_CHILD"
	scenarioEnv = "DIAG_TEST_SCENARIO"
)

// scenarios are the machines that children have.
var scenarios = map[string]func() (Machine, error){}

func TestMain(m *testing.M) {
	name, ok := os.LookupEnv(childEnv)
	if !ok {
		os.Exit(m.Run())
	}
	sensors := func() (Sensors, error) { return fakeSensors{}, nil }
	err := Child(context.Background(), name, Environment{Open: scenarios[os.Getenv(scenarioEnv)], Sensors: sensors, Root: "/"}, os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}
