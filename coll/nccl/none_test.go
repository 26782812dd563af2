//go:build !cuda || !cgo

package nccl

import (
	"errors"
	"strings"
	"testing"
)

func TestOpenSaysThatThereIsNoBinding(t *testing.T) {
	_, err := Open()
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "build tag cuda") {
		t.Errorf("Open: %v", err)
	}
}
