// Package runtime gives the generated code memory that its host may write into and read.
package runtime

import (
	"runtime"
	"unsafe"
)

// Allocate gives memory of Go's own that stays where it is as long as it is pinned. A word suits every type of WIT.
func Allocate(pinner *runtime.Pinner, size, _ uintptr) unsafe.Pointer {
	place := unsafe.Pointer(unsafe.SliceData(make([]uint64, (size+7)/8)))
	if size > 0 {
		pinner.Pin(place)
	}
	return place
}

// Unpin would give back what the host has written. An instance runs once, so that nothing is given back.
func Unpin() {}

// What is left of the memory for the host.
var free, end uintptr

// Go takes memory in pages.
const page = 64 << 10

// The host asks for memory before Go has begun, and while Go may call nothing; so it is not taken from what Go collects.
// Nor may the host grow the memory by itself: Go believes that nobody else does.
//
//go:wasmexport cabi_realloc
func allocate(_ unsafe.Pointer, _, align, size uintptr) unsafe.Pointer {
	place := (free + align - 1) &^ (align - 1)
	if place+size > end {
		place = uintptr(sbrk(size))
		end = place + (size+page-1)&^(page-1)
	}
	free = place + size
	return unsafe.Pointer(place)
}

//go:linkname sbrk runtime.sbrk
func sbrk(size uintptr) unsafe.Pointer
