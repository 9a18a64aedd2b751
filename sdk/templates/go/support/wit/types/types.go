// Package types has the generic types of WIT that Go lacks, under the names that the generated code uses.
package types

// Tags of an Option.
const (
	OptionNone = iota
	OptionSome
)

// Option is a value, or none. The zero value of an Option is none.
type Option[T any] struct {
	tag   int
	value T
}

func Some[T any](value T) Option[T] { return Option[T]{OptionSome, value} }

func None[T any]() Option[T] { return Option[T]{} }

func (option Option[T]) Tag() int { return option.tag }

// Some returns the value, or the zero value of its type for none.
func (option Option[T]) Some() T { return option.value }

// Tags of a Result.
const (
	ResultOk = iota
	ResultErr
)

// Result is a value, or an error.
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

// Unit is an empty value, such as that of a result without a value.
type Unit struct{}
