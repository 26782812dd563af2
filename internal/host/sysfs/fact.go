package sysfs

// A Fact is a value, or the reason why it is not known.
type Fact[T any] struct {
	Value T
	Err   error
}

// Known returns a fact with a value.
func Known[T any](v T) Fact[T] { return Fact[T]{Value: v} }

// Unknown returns a fact without a value.
func Unknown[T any](err error) Fact[T] { return Fact[T]{Err: err} }
