package sysfs

// A Fact is what was asked for, or why it is not known.
type Fact[T any] struct {
	Value T
	Err   error
}

// Known is a fact with a value.
func Known[T any](v T) Fact[T] { return Fact[T]{Value: v} }

// Unknown is a fact without one.
func Unknown[T any](err error) Fact[T] { return Fact[T]{Err: err} }
