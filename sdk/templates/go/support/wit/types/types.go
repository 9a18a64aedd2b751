// Package types has what the types of WIT need and Go lacks, under the names that the generated code knows.
package types

// Tags of an Option.
const (
	OptionNone = iota
	OptionSome
)

// Option is a value, or none. What Go leaves out is none.
type Option[T any] struct {
	tag   int
	value T
}

func Some[T any](value T) Option[T] { return Option[T]{OptionSome, value} }

func None[T any]() Option[T] { return Option[T]{} }

func (option Option[T]) Tag() int { return option.tag }

// Some is the value; for none the zero of its type.
func (option Option[T]) Some() T { return option.value }

// Tags of a Result.
const (
	ResultOk = iota
	ResultErr
)

// Result is a value, or why there is none.
type Result[T, E any] struct {
	tag   int
	value T
	err   E
}

func Ok[T, E any](value T) Result[T, E] { return Result[T, E]{tag: ResultOk, value: value} }

func Err[T, E any](err E) Result[T, E] { return Result[T, E]{tag: ResultErr, err: err} }

func (result Result[T, E]) Tag() int { return result.tag }

func (result Result[T, E]) Ok() T { return result.value }

func (result Result[T, E]) Err() E { return result.err }

// Tuple2 is two values.
type Tuple2[A, B any] struct {
	F0 A
	F1 B
}

// Unit is the value of what has none.
type Unit struct{}
